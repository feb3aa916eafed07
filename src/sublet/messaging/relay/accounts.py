"""The accounts of a relay: a unique name for each, the key that it stands for, and whether it still does (ezagent 7.4).

A name is never given to another key but by rotation, which the old key signs and the new one too; a name that was
revoked stays taken, with its history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sublet.protocol import ids
from sublet.protocol.ezagent.ids import is_entity_id
from sublet.protocol.relay.errors import RelayCode, RelayRefusal

MAX_NAME_CHARS: Final = 64
RESERVED: Final = frozenset({"relay", "system", "daemon", "human", "mcp", "admin", "root"})
"""Names by which nobody is to be mistaken for somebody else."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account.

    Args:
        name: which is unique, also among those that were revoked.
        key: raw Ed25519 public key of its daemon.
        version: grows with every change.
        registered_at: Unix seconds.
        revoked: whether it counts no more.
    """

    name: str
    key: bytes
    version: int
    registered_at: int
    revoked: bool = False

    @property
    def node_id(self) -> str:
        """Node id of the daemon's key."""
        return ids.node_id(self.key)


class Accounts:
    """All accounts, by name and by node id.

    Args:
        domain: of the relay.
        accounts: those that were kept.
    """

    def __init__(self, domain: str, accounts: Iterable[Account] = ()) -> None:
        self.domain = domain
        self._by_name = {one.name: one for one in accounts}
        self._by_node = {one.node_id: one.name for one in self._by_name.values() if not one.revoked}

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Account | None:
        """Return the account of a name, a revoked one too."""
        return self._by_name.get(name)

    def of_node(self, node: str) -> Account | None:
        """Return the account of a daemon that counts."""
        name = self._by_node.get(node)
        return self._by_name[name] if name is not None else None

    def all(self) -> list[Account]:
        """Return all accounts, in the order of their names."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def registered(self, name: str, key: bytes, now: int) -> Account:
        """Return the account of a name as it is once this key has registered it; nothing changes yet.

        The same key may register the same name again, for a new certificate.

        Raises:
            RelayRefusal: ``INVALID_ENTITY_ID``; ``ENTITY_EXISTS`` where it is another's; ``CONFLICT`` where the key has
                another name; ``REVOKED``.
        """
        if not is_name(name, self.domain):
            raise RelayRefusal(RelayCode.INVALID_ENTITY_ID, "a name has a to z, 0 to 9, ., _ and - alone")
        known = self._by_name.get(name)
        if known is not None:
            return self.require(name, key)
        other = self._by_node.get(ids.node_id(key))
        if other is not None:
            raise RelayRefusal(RelayCode.CONFLICT, f"this key has the name {other} here")
        return Account(name, key, 1, now)

    def require(self, name: str, key: bytes) -> Account:
        """Return the account of a name that this key has.

        Raises:
            RelayRefusal: ``ENTITY_NOT_FOUND``, ``ENTITY_EXISTS`` where it is another's, or ``REVOKED``.
        """
        known = self._by_name.get(name)
        if known is None:
            raise RelayRefusal(RelayCode.ENTITY_NOT_FOUND, "nobody has this name here")
        if known.key != key:
            raise RelayRefusal(RelayCode.ENTITY_EXISTS, "the name is taken")
        if known.revoked:
            raise RelayRefusal(RelayCode.REVOKED, "the name was revoked")
        return known

    def rotated(self, name: str, old: bytes, new: bytes) -> Account:
        """Return an account as it is once a new key has taken the place of the old one; nothing changes yet.

        Raises:
            RelayRefusal: as ``require``; ``CONFLICT`` where the new key has a name already.
        """
        known = self.require(name, old)
        if (other := self._by_node.get(ids.node_id(new))) is not None:
            raise RelayRefusal(RelayCode.CONFLICT, f"the new key has the name {other} here")
        return replace(known, key=new, version=known.version + 1)

    def revoked(self, name: str) -> Account:
        """Return an account as it is once it was revoked; nothing changes yet.

        Raises:
            RelayRefusal: ``ENTITY_NOT_FOUND``.
        """
        known = self._by_name.get(name)
        if known is None:
            raise RelayRefusal(RelayCode.ENTITY_NOT_FOUND, "nobody has this name here")
        return known if known.revoked else replace(known, version=known.version + 1, revoked=True)

    def put(self, account: Account) -> None:
        """Take an account as it was kept."""
        before = self._by_name.get(account.name)
        if before is not None and self._by_node.get(before.node_id) == account.name:
            del self._by_node[before.node_id]
        self._by_name[account.name] = account
        if not account.revoked:
            self._by_node[account.node_id] = account.name


def is_name(name: str, domain: str) -> bool:
    """Tell whether a text may be the name of an account of a domain."""
    return len(name) <= MAX_NAME_CHARS and name not in RESERVED and is_entity_id(f"@{name}:{domain}")
