"""A peer that says more than its share waits in its own connection, and nobody else does."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from sublet.messaging.links.batches import BatchReader
from sublet.messaging.links.declared import DeclaredByPeer, DeclaredOnLink
from sublet.messaging.links.link import READ, Way
from sublet.messaging.links.pace import AT_ONCE_BYTES, BYTES_A_SECOND, MESSAGE_BYTES, Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Nothing(BatchReader):
    """Finds no message in what comes."""

    def feed(self, piece: bytes | memoryview) -> None:
        pass


class Anything(BatchReader):
    """Takes whatever comes."""

    def feed(self, piece: bytes | memoryview) -> None:
        self.messages += 1


@contextmanager
def way(clock: Clock) -> Iterator[tuple[Way, socket.socket, socket.socket]]:
    """Yield a way, the end that feeds it, and the end that it feeds."""
    peer, source = socket.socketpair()
    sink, zenoh = socket.socketpair()
    declared = DeclaredByPeer(clock, Pace(clock))
    with peer, source, sink, zenoh:
        for one in (peer, source, sink, zenoh):
            one.setblocking(False)
        made = Way(source, sink, DeclaredOnLink(declared))
        made._reader = Anything(lambda _: None)
        yield made, peer, zenoh


def test_a_share_is_spent_and_comes_back() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert not pace.is_spent()
    pace.spend(AT_ONCE_BYTES - MESSAGE_BYTES, 1)
    assert pace.is_spent()
    clock.now += 0.25
    assert not pace.is_spent()
    pace.spend(BYTES_A_SECOND // 4 - 1, 0)
    assert not pace.is_spent()
    pace.spend(1, 0)
    assert pace.is_spent()
    clock.now += 3_600.0
    assert not pace.is_spent()
    pace.spend(AT_ONCE_BYTES, 0)
    assert pace.is_spent(), "what was left for an hour is not kept"


def test_nothing_is_read_of_whoever_has_had_their_share_until_there_is_more_of_it() -> None:
    clock = Clock()
    with way(clock) as (made, peer, zenoh):
        assert made.move() == {made.source: READ}
        made.declared.of_peer.pace.spend(AT_ONCE_BYTES, 0)
        peer.send(b"more")
        assert made.move() == {}, "it waits for nothing but the time"
        assert made.is_due
        clock.now += 0.01
        assert made.move() == {made.source: READ}
        assert not made.is_due
        assert zenoh.recv(16) == b"more"


def test_all_links_of_a_peer_share_what_it_has() -> None:
    clock = Clock()
    with way(clock) as (one, _, _), way(clock) as (other, _, _):
        other.declared.of_peer = one.declared.of_peer
        assert one.move() == {one.source: READ}
        one.declared.of_peer.pace.spend(AT_ONCE_BYTES, 0)
        assert other.move() == {}


def test_who_sends_byte_by_byte_has_their_share_no_longer_than_others() -> None:
    with way(Clock()) as (made, peer, _):
        made._reader = Nothing(lambda _: None)
        assert made.move() == {made.source: READ}
        made.declared.of_peer.pace.spend(AT_ONCE_BYTES - MESSAGE_BYTES, 0)
        peer.send(b"x")
        assert made.move() == {made.source: READ}
        assert made.move() == {}
