"""A network in memory for tests: peers on one hub, between whom links can be cut and deliveries lost or doubled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from threading import Event, Thread
from typing import TypeVar

from sublet.messaging.ports.network import ANYBODY, Heard, PeerQuery, Qos, Sample
from sublet.protocol.patterns import Pattern, glob

ItemT = TypeVar("ItemT")


@dataclass
class MemoryHub:
    """Where peers meet.

    Args:
        loss: how often a published sample is lost, from 0 to 1.
        doubled: how often it comes twice.
        random: decides both.
    """

    loss: float = 0.0
    doubled: float = 0.0
    random: Random = field(default_factory=lambda: Random(0))

    def __post_init__(self) -> None:
        self.peers: list[MemoryNetwork] = []
        self._cut: set[frozenset[int]] = set()

    def join(self) -> MemoryNetwork:
        """Return the network of a new peer."""
        peer = MemoryNetwork(self, len(self.peers))
        self.peers.append(peer)
        return peer

    def cut(self, one: MemoryNetwork, other: MemoryNetwork) -> None:
        """Cut the link between two peers."""
        self._cut.add(frozenset((one.number, other.number)))
        self._changed(one, other)

    def heal(self) -> None:
        """Restore every link."""
        self._cut.clear()
        self._changed(*self.peers)

    def reach(self, peer: MemoryNetwork) -> list[MemoryNetwork]:
        """Return the peers that a peer reaches."""
        return [
            other
            for other in self.peers
            if other is not peer and not other.closed and frozenset((peer.number, other.number)) not in self._cut
        ]

    def tell_of(self, key: str) -> None:
        """Let all who follow a key look again."""
        for peer in self.peers:
            peer.look(key)

    def _changed(self, *peers: MemoryNetwork) -> None:
        for peer in peers:
            peer.changes += 1
            peer.look_at_all()
            for callback in list(peer.changed):
                callback()


class MemoryNetwork:
    """See ``engine.network.Network``."""

    def __init__(self, hub: MemoryHub, number: int) -> None:
        self.number = number
        self.closed = False
        self.changed: list[Callable[[], None]] = []
        self.changes = 0
        self._hub = hub
        self._heard: dict[int, tuple[str, Callable[[Sample], None]]] = {}
        self._served: dict[int, tuple[str, Callable[[PeerQuery], None]]] = {}
        self._announced: dict[int, str] = {}
        self._followed: dict[int, tuple[str, Callable[[bool], None], list[bool]]] = {}
        self._next = 0

    def publish(self, key: str, payload: bytes, attachment: bytes, qos: Qos, to: Collection[str] | None = None) -> None:
        """Publish to all that this one reaches, since no link here proves who that is."""
        for peer in self._hub.reach(self):
            if self._hub.random.random() < self._hub.loss:
                continue
            for _ in range(2 if self._hub.random.random() < self._hub.doubled else 1):
                for pattern, callback in list(peer._heard.values()):
                    if matches(pattern, key):
                        callback(Sample(key, payload, attachment))

    def subscribe(self, key: str, callback: Callable[[Sample], None]) -> Callable[[], None]:
        return self._add(self._heard, (key, callback))

    def serve(self, key: str, callback: Callable[[PeerQuery], None]) -> Callable[[], None]:
        return self._add(self._served, (key, callback))

    def query(self, key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
        return self.query_of(key, payload, timeout_seconds, None)

    def query_of(
        self, key: str, payload: bytes, timeout_seconds: float, of: Collection[MemoryNetwork] | None
    ) -> list[bytes]:
        """Return what these answer, or all that this one reaches."""
        queries = [
            (query := _Query(key, payload), callback(query))[0]
            for peer in self._hub.reach(self)
            if of is None or peer in of
            for pattern, callback in list(peer._served.values())
            if matches(pattern, key)
        ]
        found = (query.wait(timeout_seconds) for query in queries)
        return [answer for answer in found if answer is not None]

    def linked(self) -> Collection[str]:
        return [ANYBODY] if self._hub.reach(self) else []

    def met(self) -> Mapping[str, int]:
        return {ANYBODY: self.changes} if self._hub.reach(self) else {}

    def ask(self, peer: str, key: str, payload: bytes, timeout_seconds: float, heard: Heard) -> Callable[[], None]:
        """Ask all that this one reaches."""

        def wait() -> None:
            for answer in self.query(key, payload, timeout_seconds):
                heard(answer)
            heard(None)

        Thread(target=wait, daemon=True).start()
        return lambda: None

    def announce(self, key: str) -> Callable[[], None]:
        end = self._add(self._announced, key)
        self._hub.tell_of(key)

        def stop() -> None:
            end()
            self._hub.tell_of(key)

        return stop

    def follow(self, key: str, callback: Callable[[bool], None]) -> Callable[[], None]:
        undo = self._add(self._followed, (key, callback, [False]))
        self.look(key)
        return undo

    def look(self, key: str) -> None:
        """Tell followers whether a key is announced by whom this peer reaches, where that has changed."""
        there = any(key in peer._announced.values() for peer in self._hub.reach(self))
        for followed, callback, known in list(self._followed.values()):
            if followed == key and known != [there]:
                known[:] = [there]
                callback(there)

    def look_at_all(self) -> None:
        """Do so for all keys."""
        for key in {followed for followed, _, _ in self._followed.values()}:
            self.look(key)

    def on_change(self, callback: Callable[[], None]) -> None:
        self.changed.append(callback)

    def close(self) -> None:
        self.closed = True
        for peer in self._hub.peers:
            peer.look_at_all()

    def _add(self, kept: dict[int, ItemT], item: ItemT) -> Callable[[], None]:
        number, self._next = self._next, self._next + 1
        kept[number] = item

        def end() -> None:
            kept.pop(number, None)

        return end


class _Query:
    """A query that waits for its answer."""

    def __init__(self, key: str, payload: bytes) -> None:
        self.key = key
        self.payload = payload
        self.peer = ANYBODY
        self._answer: bytes | None = None
        self._done = Event()

    def reply(self, payload: bytes) -> None:
        self._answer = payload
        self._done.set()

    def drop(self) -> None:
        self._done.set()

    def wait(self, seconds: float) -> bytes | None:
        self._done.wait(seconds)
        return self._answer


@functools.lru_cache(maxsize=1024)
def _glob(chunk: str) -> Pattern[str]:
    return glob(chunk)


def matches(pattern: str, key: str) -> bool:
    """Tell whether a key expression of Zenoh matches a key: ``*`` stands for a chunk, ``$*`` for a part of one.

    Neither matches a chunk that begins with ``@``.
    """
    pieces, chunks = pattern.split("/"), key.split("/")
    return len(pieces) == len(chunks) and all(
        piece == chunk or ("*" in piece and not chunk.startswith("@") and _glob(piece.replace("$*", "*")).match(chunk))
        for piece, chunk in zip(pieces, chunks, strict=True)
    )
