"""Clocks that differ are told once, with by how much, and heal; who has another clock is answered all the same."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.messaging.syncing.doorkeeper import Doorkeeper
from sublet.messaging.trust.clocks import DIFFERS_MS, SURE_MS
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.question import MAX_AGE_MS, NONCE_BYTES, encode_question
from support.noise import noise
from support.rooms import Peer, peers, shared_room

DAY_MS = 86_400_000


class Asked:
    """A question of a peer, as it comes."""

    def __init__(self, key: str, peer: Peer) -> None:
        self.key, self.peer = key, ""
        nonce = noise(NONCE_BYTES)
        self.payload = encode_question(key, peer.entity.record, peer.entity.key, peer.clock(), nonce, b"")

    def reply(self, payload: bytes) -> None: ...

    def drop(self) -> None: ...


class World:
    def __init__(self) -> None:
        self.alice, self.bob = peers("alice", "bob")
        self.room = shared_room(self.alice, self.bob)
        self.key = doc_id("root", room_id=self.room)
        self.door = Doorkeeper()
        self.told: dict[str, int] = {}
        self.alice.engine.clocks.listeners.append(lambda told: setattr(self, "told", told))
        self.node = self.bob.id.partition(":")[2]

    def asks(self) -> Asked:
        asked = Asked(self.key, self.bob)
        assert self.admits(asked)
        return asked

    def admits(self, asked: Any) -> bool:
        try:
            return self.door.admit(self.alice.engine, asked) is not None
        except Refused:
            return False

    def events(self) -> list[int]:
        found = self.alice.engine.events.since(0)
        return [row.data["ahead_seconds"] for row in found if row.kind == "room.clock_differs"]  # type: ignore[misc]

    def passes(self, milliseconds: int) -> None:
        self.alice.clock.now_ms += milliseconds
        self.bob.clock.now_ms += milliseconds


@pytest.mark.parametrize("days", [-400, -40, 40, 400])
def test_a_clock_that_differs_is_told_with_by_how_much_and_heals(days: int) -> None:
    world = World()
    world.asks()
    assert world.told == {}
    world.passes(SURE_MS)
    world.bob.clock.now_ms += days * DAY_MS
    for _ in range(4):
        world.asks()  # it is answered, and told once
        world.passes(30_000)
    assert world.told == {world.node: days * DAY_MS}
    assert world.events() == [days * 86_400]
    world.bob.clock.now_ms -= days * DAY_MS
    world.asks()
    assert world.told == {}
    assert world.events() == [days * 86_400, 0]


def test_a_minute_is_told_and_less_is_not() -> None:
    world = World()
    world.bob.clock.now_ms += DIFFERS_MS - 1
    world.asks()
    assert (world.told, world.events()) == ({}, [])
    world.bob.clock.now_ms += 1
    world.asks()
    assert world.told == {world.node: DIFFERS_MS}


def test_who_repeats_an_old_question_of_a_daemon_that_asks_itself_makes_nobody_believe_in_another_clock() -> None:
    world = World()
    old = world.asks()
    world.passes(MAX_AGE_MS + 1)
    world.asks()
    assert not world.admits(old)
    assert world.told == {}


def test_a_question_of_another_clock_is_answered_once() -> None:
    world = World()
    world.bob.clock.now_ms += 40 * DAY_MS
    asked = world.asks()
    other = world.asks()
    assert not world.admits(asked)
    assert not world.admits(other)
    world.passes(MAX_AGE_MS + 1)
    world.asks()
    assert not world.admits(asked)  # it is not of now by that clock either


def test_many_daemons_and_rooms_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from sublet.messaging.trust import clocks

    monkeypatch.setattr(clocks, "MAX_DAEMONS", 8)
    monkeypatch.setattr(clocks, "MAX_TOLD", 8)
    world = World()
    for number in range(50):
        world.alice.engine.clocks.by_its_own(f"@x:node-{number}", f"room-{number}", world.alice.clock() + DAY_MS)
    assert len(world.alice.engine.clocks._clocks) == len(world.told) == 8
    assert len(world.alice.engine.clocks._told) == 8
