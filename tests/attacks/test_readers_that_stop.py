"""Whoever reads nothing of what is published over its link, or too little: it is cut, and nobody else waits for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from attacks.floods.questions import stops_reading
from attacks.kit.neighbour import Neighbour, public
from attacks.test_bus import ANN, BOB, DATA, EVE, KEY, Bus, joined
from sublet.messaging.links import link as link_module
from sublet.messaging.links.link import READ, WRITE, Held, HoldingWay, Over
from support.daemons import wait_for

MEBIBYTE = 1 << 20


class Way:
    """A way to a reader, with a clock that goes when it is told to."""

    def __init__(self, stack: ExitStack, held: Held | None = None) -> None:
        self.writer, source = map(stack.enter_context, socket.socketpair())
        sink, self.reader = map(stack.enter_context, socket.socketpair())
        self.now = 100.0
        self.held = held or Held()
        self.way = HoldingWay(source, sink, self.held, lambda: self.now)
        for one in (self.writer, source, sink, self.reader):
            one.setblocking(False)

    def fill(self, size: int) -> int:
        """Say so much that nobody reads; return how much was taken."""
        taken = 0
        while taken < size and (sent := self._send(size - taken)):
            taken += sent
        return taken

    def _send(self, most: int) -> int:
        for _ in range(2):
            try:
                return self.writer.send(bytes(min(most, 1 << 16)))
            except BlockingIOError:
                self.way.move()
        return 0

    def read(self, most: int) -> int:
        """Read as a reader does."""
        try:
            return len(self.reader.recv(most))
        except BlockingIOError:
            return 0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def test_what_a_slow_reader_does_not_take_is_held_and_comes_whole(stack: ExitStack) -> None:
    way = Way(stack)
    said = bytes(range(256)) * 8_192
    got = bytearray()
    for start in range(0, len(said), 1 << 14):
        way.writer.send(said[start : start + (1 << 14)])
        way.way.move()
    assert 0 < way.held.size <= len(said)
    while len(got) < len(said):
        got += way.reader.recv(1 << 20)
        way.way.move()
    assert bytes(got) == said
    assert way.held.size == 0
    assert way.way.move() == {way.way.source: READ}


def test_a_reader_that_takes_nothing_is_cut_once_no_more_is_held_for_it(stack: ExitStack) -> None:
    way = Way(stack)
    way.fill(link_module.MAX_HELD_BYTES_OF_LINK)
    assert way.held.size < link_module.MAX_HELD_BYTES_OF_LINK + MEBIBYTE
    way.now += link_module.STOPPED_SECONDS + 0.01
    with pytest.raises(Over):
        way.fill(8 * MEBIBYTE)
    way.way.close()
    assert way.held.size == 0, "nothing is held of who was cut"


def test_a_reader_that_takes_too_little_is_cut_too(stack: ExitStack) -> None:
    way = Way(stack)
    way.fill(16 * MEBIBYTE)
    assert way.way.is_due

    def go_on() -> None:
        for _ in range(100):
            way.now += link_module.STOPPED_SECONDS / 2
            assert way.read(1 << 16)
            way.fill(MEBIBYTE)

    with pytest.raises(Over):
        go_on()


def test_a_reader_that_catches_up_is_not_cut(stack: ExitStack) -> None:
    way = Way(stack)
    way.fill(16 * MEBIBYTE)
    assert way.way.is_due
    way.now += link_module.STOPPED_SECONDS / 2
    while way.held.size > MEBIBYTE:
        assert way.read(1 << 20)
        way.way.move()
    assert not way.way.is_due
    way.now += 10 * link_module.SLOW_SECONDS
    assert way.way.move() is not None


def test_all_readers_together_have_a_bound(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_HELD_BYTES", 4 * MEBIBYTE)
    held = Held()
    ways = [Way(stack, held) for _ in range(6)]
    for way in ways:
        way.fill(3 * MEBIBYTE)
    assert held.size <= 4 * MEBIBYTE + len(ways) * link_module.PIECE_BYTES
    for way in ways:
        way.way.close()
    assert held.size == 0


def test_what_waits_for_a_reader_is_told_of(stack: ExitStack) -> None:
    way = Way(stack)
    way.fill(2 * MEBIBYTE)
    assert way.way.move() == {way.way.source: READ, way.way.sink: WRITE}


@pytest.mark.timeout(120)
def test_nobody_waits_for_a_neighbour_that_stops_reading(tmp_path: Path, stack: ExitStack) -> None:
    ann, bob = Bus(tmp_path / "ann", ANN, [BOB, EVE]), Bus(tmp_path / "bob", BOB, [ANN])
    stack.callback(ann.close)
    stack.callback(bob.close)
    bob.call(ANN, ann.port)
    joined(ann, bob)
    eve = Neighbour(EVE, public(ANN), ann.port)
    stack.callback(eve.close)
    eve.subscribe(KEY, lambda _: None)
    wait_for(lambda: len(ann.links.peers()) == 2, what="her link")
    on = stops_reading(eve)
    stack.callback(on.set)

    def is_cut() -> bool:
        for _ in range(16):
            ann.network.publish(KEY, bytes(MEBIBYTE), b"", DATA)
        return public(EVE) not in ann.links.peers()

    wait_for(is_cut, 60, "the end of her link")
    bob.heard.clear()
    ann.network.publish(KEY, b"the last", b"", DATA)
    wait_for(lambda: b"the last" in bob.heard, 60, "what was published meanwhile")
    assert ann.links.peers() == [public(BOB)]
