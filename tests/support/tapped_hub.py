"""A hub in memory that keeps every byte that passes, as a relay or a neighbour on the bus sees it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sublet.messaging.engine.engine import Engine
from sublet.messaging.ports.network import Qos
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.sealing.envelope import is_sealed, open_sealed, unpack
from support.memory_network import MemoryHub, MemoryNetwork


@dataclass
class TappedHub(MemoryHub):
    """See ``MemoryHub``; ``passed`` has keys, payloads, questions and answers."""

    passed: list[bytes] = field(default_factory=list)
    published: list[tuple[str, bytes]] = field(default_factory=list)

    def join(self) -> MemoryNetwork:
        peer = _Tapped(self, len(self.peers))
        self.peers.append(peer)
        return peer

    @property
    def sealed(self) -> int:
        """How many sealed envelopes have passed."""
        return sum(is_sealed(payload) for _, payload in self.published)

    def shows(self, words: str) -> bool:
        """Tell whether some words were seen."""
        return any(words.encode() in raw for raw in self.passed)

    def keys_sealed(self, prefix: str) -> set[str]:
        """Return the keys under which something sealed was published."""
        return {key for key, payload in self.published if key.startswith(prefix) and is_sealed(payload)}

    def keys_open(self, prefix: str) -> set[str]:
        """Return the keys under which something was published that is not sealed."""
        return {key for key, payload in self.published if key.startswith(prefix) and not is_sealed(payload)}

    def opened_by(self, engine: Engine, room: str) -> bytes:
        """Return all that a daemon can open of what was published, with every key that it has of a room."""
        found = b""
        for _, payload in self.published:
            if not is_sealed(payload):
                continue
            sealed = unpack(payload)
            key = engine.seals.reading_key(room, sealed.header.epoch)
            if key is not None:
                try:
                    found += open_sealed(sealed, key)
                except Refused:
                    continue
        return found


class _Tapped(MemoryNetwork):
    def __init__(self, hub: TappedHub, number: int) -> None:
        super().__init__(hub, number)
        self._tapped = hub

    def publish(self, key: str, payload: bytes, attachment: bytes, qos: Qos, to: Collection[str] | None = None) -> None:
        self._tapped.passed += [key.encode(), payload, attachment]
        self._tapped.published.append((key, payload))
        super().publish(key, payload, attachment, qos, to)

    def query(self, key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
        answers = super().query(key, payload, timeout_seconds)
        self._tapped.passed += [key.encode(), payload, *answers]
        return answers
