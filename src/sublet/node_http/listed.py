"""The nodes that federation.toml lists with a key's fingerprint and a url, and what is known of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from sublet.federation.ports import KnownNode
from sublet.federation.settings import PeerSettings, Settings
from sublet.protocol.ids import fingerprint, node_id

SWITCHED_OFF: Final = (
    "it is not paired, and agent_federation.http.enabled is false: pair with `sublet pair` there and "
    "`sublet peers add LINK` here, or switch HTTP on"
)
DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is called.

    Args:
        host: a name or an address.
        port: of it.
        tls: whether it is called by TLS.
        fingerprint: of the key that it has to prove.
    """

    host: str
    port: int
    tls: bool
    fingerprint: str


class ListedNodes:
    """See the module. All of it is looked up in the settings of now, so that a node that is taken out has nothing.

    Args:
        settings: as they are now.
        paired: node ids of paired daemons, which are known by their pairing.
        learned: called where the key of another node is known.
    """

    def __init__(
        self, settings: Callable[[], Settings], paired: Callable[[], set[str]], learned: Callable[[], object]
    ) -> None:
        self._settings = settings
        self._paired = paired
        self._learned = learned
        self._looked_at: Settings | None = None
        self._of_them: dict[str, PeerSettings] = {}
        self._keys: dict[str, bytes] = {}
        """By fingerprint: the keys that were seen and have it."""
        self._ids: dict[str, str] = {}
        """By fingerprint: the node ids of these keys."""
        self._prints: dict[str, str] = {}
        """By node id: the fingerprint."""
        self._why: dict[str, str] = {}
        """By fingerprint: why a node was not reached when it was called last."""

    @property
    def on(self) -> bool:
        """Whether anything is said over HTTP."""
        settings = self._settings()
        return settings.on and settings.http.enabled

    def _usable(self) -> dict[str, PeerSettings]:
        """Return those that are called and may call, by fingerprint: found once for what the file says now, since it is
        asked for with each request and for each node.
        """
        settings = self._settings()
        if settings is not self._looked_at:
            on = settings.on and settings.http.enabled
            self._of_them = {
                one.fingerprint: one for one in settings.peers if on and one.fingerprint and not one.why_no_http
            }
            self._looked_at = settings
        return self._of_them

    def admits(self, public_key: bytes) -> bool:
        """Tell whether whoever has proven a key may say anything."""
        return fingerprint(public_key) in self._usable()

    def keys(self) -> list[bytes]:
        """Return the keys that may say something and are known."""
        usable = self._usable()
        return [key for print_, key in self._keys.items() if print_ in usable]

    def unknown(self) -> list[Place]:
        """Return where the nodes are called whose keys nobody has seen yet."""
        return [_place(one) for print_, one in self._usable().items() if print_ not in self._keys]

    def place(self, print_: str) -> Place | None:
        """Return where the node of a key is called; None for nowhere."""
        found = self._usable().get(print_)
        return None if found is None else _place(found)

    def known(self) -> list[KnownNode]:
        """Return the nodes that are not paired, and whose keys are known: each called as federation.toml calls it."""
        paired = self._paired()
        return [
            self._node(print_, one)
            for print_, one in self._usable().items()
            if print_ in self._keys and self._ids[print_] not in paired
        ]

    def pinned(self, id_: str) -> KnownNode | None:
        """Return one of them by its node id, however many there are."""
        print_ = self._prints.get(id_, "")
        one = self._usable().get(print_)
        return self._node(print_, one) if one is not None and id_ not in self._paired() else None

    def _node(self, print_: str, peer: PeerSettings) -> KnownNode:
        return KnownNode(self._ids[print_], self._keys[print_], print_, peer.node_id, paired=False)

    def learn(self, public_key: bytes) -> bool:
        """Take note of a key that somebody has shown; return False where no node is listed with it."""
        print_ = fingerprint(public_key)
        if print_ not in self._usable():
            return False
        if print_ not in self._keys:
            for gone in self._keys.keys() - self._usable().keys():
                del self._keys[gone], self._prints[self._ids.pop(gone)]
            self._keys[print_], self._ids[print_] = public_key, node_id(public_key)
            self._prints[self._ids[print_]] = print_
            self._learned()
        return True

    def failed(self, print_: str, why: str) -> None:
        """Take note why a node was not reached; empty where it was."""
        if not why:
            self._why.pop(print_, None)
        elif print_ in self._usable():
            self._why[print_] = why

    def why_not(self, peer: PeerSettings) -> str:
        """Return why nothing is said to a node of the file over HTTP; empty where something is."""
        if not self._settings().http.enabled:
            return "; ".join(one for one in (SWITCHED_OFF, peer.why_no_http) if one)
        return peer.why_no_http or self._why.get(peer.fingerprint or "", "")


def _place(peer: PeerSettings) -> Place:
    parts = urlsplit(peer.url or "")
    tls = parts.scheme == "https"
    return Place(parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme], tls, peer.fingerprint or "")
