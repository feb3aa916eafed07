"""A member of a room whose updates are small and would cost much: counted in lines and bytes, through the engine."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from attacks.counting import lines_run
from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.documents.document import MAX_DEPTH
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.errors import Refusal
from sublet.protocol.ezagent.ids import client_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.writer import write_number
from support.rooms import NOW_MS, Peer, peers, shared_room

LINEAR = 2.5
LONGEST = 1 << 16
_MAP, _GONE, _KEY = 7, 1, 32


def _head(number: int, client: int) -> bytearray:
    out = bytearray()
    for value in (1, number, client, 0):
        write_number(out, value)
    return out


def nested(number: int, client: int) -> bytes:
    """Return an update with as many maps, each in the one before."""
    out = _head(number, client)
    for clock in range(number):
        out.append(_MAP | _KEY)
        if clock:
            out.append(0)
            write_number(out, client)
            write_number(out, clock - 1)
        else:
            out += b"\1\6config"
        out += b"\1a\1"
    return bytes(out) + b"\0"


def long(number: int, client: int) -> bytes:
    """Return an update with as many items of a few bytes, each of which takes as many clocks as it can."""
    out = _head(number, client)
    for _ in range(number):
        out += bytes([_GONE | _KEY]) + b"\1\6config\1a"
        write_number(out, LONGEST)
    return bytes(out) + b"\0"


class Scene:
    """Alice, and what Bob signs for the config of a room of both."""

    def __init__(self) -> None:
        self.alice, self.bob = peers("alice", "bob")
        self.room = shared_room(self.alice, self.bob)
        self._clients = iter(client_id(self.bob.id, 1_000 + number) for number in range(100))

    def arrival(self, make: Callable[[int, int], bytes], number: int) -> Arrival:
        payload = make(number, next(self._clients))
        name = doc_id("config", room_id=self.room)
        return Arrival(seal(self.bob.entity.key, self.bob.id, name, NOW_MS, payload).raw)

    def cost(self, make: Callable[[int, int], bytes], number: int) -> int:
        arrival = self.arrival(make, number)
        return lines_run(lambda: self.alice.engine.intake.take([arrival]))


def _goes_on(alice: Peer, room: str) -> None:
    alice.do("message.send", room_id=room, body="still here")
    assert alice.bodies(room) == ["still here"]


@pytest.mark.parametrize("make", [nested, long])
def test_an_update_costs_what_its_bytes_are(make: Callable[[int, int], bytes]) -> None:
    costs = []
    for number in (512, 1_024):
        scene = Scene()
        scene.cost(make, 4)
        costs.append(scene.cost(make, number))
        _goes_on(scene.alice, scene.room)
    assert costs[1] / costs[0] <= LINEAR


def test_maps_in_maps_are_refused_beyond_a_depth() -> None:
    scene = Scene()
    outcome = scene.alice.engine.intake.take([scene.arrival(nested, MAX_DEPTH)])
    assert outcome.accepted == 1
    scene.alice.engine.intake.take([scene.arrival(nested, MAX_DEPTH + 1)])
    assert scene.alice.refused()[Refusal.WRONG_SHAPE] == 1
    _goes_on(scene.alice, scene.room)


def test_items_that_say_they_are_long_take_no_memory() -> None:
    scene = Scene()
    scene.cost(long, 4)
    arrival = scene.arrival(long, 1_000)
    tracemalloc.start()
    try:
        scene.alice.engine.intake.take([arrival])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
