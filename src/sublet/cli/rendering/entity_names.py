"""Entities of rooms as people know them: ``you``, ``human@bob``; and what they type for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.near import did_you_mean
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line

YOU: Final = "you"
HUMAN: Final = "human"
SHOWN_DOMAIN_CHARS: Final = 12
MAX_SHOWN_CHARS: Final = 80
_ENTITY = Pattern(r"@([^:@]+):(.+)\Z")


class EntityNames:
    """Names of entities, by the peers that their domains are.

    Args:
        me: our own entity.
        peers: name of each paired daemon, by node id.
        whole: whether the node of an unknown daemon is given whole, as a pipe gets it.
    """

    def __init__(self, me: str, peers: Mapping[str, str], *, whole: bool = False) -> None:
        self._whole = whole
        self.me = me
        self._peers = dict(peers)
        self._nodes = {name: node for node, name in peers.items()}

    def is_ours(self, entity: str) -> bool:
        """Tell whether an entity is of this daemon."""
        return entity.rpartition(":")[2] == self.me.partition(":")[2]

    def is_near(self, entity: str) -> bool:
        """Tell whether an entity is of this daemon or of one that is paired with it."""
        return self.is_ours(entity) or entity.rpartition(":")[2] in self._peers

    def short(self, entity: str) -> str:
        """Return how a person knows an entity; in full where nobody here knows its daemon."""
        if entity == self.me:
            return YOU
        found = _ENTITY.match(entity)
        if found is None:
            return clean_line(entity, len(entity) + 1)
        local, domain = found.groups()
        if domain == self.me.partition(":")[2]:
            return clean_line(f"{local}@here", MAX_SHOWN_CHARS)
        peer = self._peers.get(domain)
        if peer is not None:
            return clean_line(peer if local == HUMAN else f"{local}@{peer}", MAX_SHOWN_CHARS)
        shown = domain if self._whole or len(domain) <= SHOWN_DOMAIN_CHARS else f"{domain[:SHOWN_DOMAIN_CHARS]}…"
        return clean_line(f"{local}@{shown}", len(local) + len(shown) + 2)

    def entity(self, given: str) -> str:
        """Return the entity that was typed: ``@name:node`` as it is, a peer's name, or ``AGENT@PEER``.

        Raises:
            SubletError: ``NOT_FOUND``: no peer has that name.
        """
        if given == YOU:
            return self.me
        if given.startswith("@") and ":" in given:
            local, _, domain = given.partition(":")
            return f"{local}:{self._nodes.get(domain, domain)}"
        local, at, peer = given.rpartition("@")
        domain = self.me.partition(":")[2] if peer == "here" else self._nodes.get(peer, "")
        if not domain or (at and not local):
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"{clean_line(given, MAX_SHOWN_CHARS)!r} is no entity and no peer{did_you_mean(peer, self._nodes)}",
                "Give what `sublet whoami` says there, a peer's name, or AGENT@PEER.",
            )
        return f"@{local or HUMAN}:{domain}"
