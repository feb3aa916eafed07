"""Learning of rooms: all of them, however many, and each at the price of one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest

from sublet.messaging import answers
from sublet.messaging.backends.memory_network import MemoryHub
from sublet.messaging.invitations import rooms_in
from sublet.protocol.ezagent.bundle import RecordKind, decode_bundle
from support.members import SECONDS, member
from support.rooms import peers

pytestmark = pytest.mark.anyio
ROOMS = 12


async def test_who_comes_back_learns_of_all_rooms_however_little_an_answer_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MAX_ANSWER_BYTES", 4_096)
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        async with member("bob", 2, hub, tmp_path) as bob:
            bob_id = bob.id
        create = partial(alice.bus.room.create, invite=[bob_id])
        rooms = {(await create(name=f"r{number}"))["room_id"] for number in range(ROOMS)}
        async with member("bob", 3, hub, tmp_path) as bob:
            with anyio.fail_after(SECONDS):
                while {room["room_id"] for room in await bob.bus.room.list()} != rooms:
                    await bob.service.watch(bob.id, 0, 0.1)


def test_an_offer_tells_of_one_room_and_an_inbox_of_none_that_is_known() -> None:
    alice, bob = peers("alice", "bob")
    rooms = [alice.do("room.create", name=f"r{number}", invite=[bob.id])["room_id"] for number in range(ROOMS)]
    offered = answers.offer(alice.engine, bob.id, [rooms[3]])
    assert offered is not None
    assert list(rooms_in(decode_bundle(offered))) == [rooms[3]]
    found = answers.inbox(alice.engine, bob.id, rooms[1:])
    assert found is not None
    assert list(rooms_in(decode_bundle(found))) == [rooms[0]]
    assert answers.inbox(alice.engine, bob.id, rooms) is None


def test_who_has_signed_is_told_once_for_all_rooms() -> None:
    alice, bob = peers("alice", "bob")
    for number in range(ROOMS):
        alice.do("room.create", name=f"r{number}", invite=[bob.id])
    answer = answers.inbox(alice.engine, bob.id, ())
    assert answer is not None
    bundle = decode_bundle(answer)
    assert len(bundle.of(RecordKind.IDENTITY)) == 1
    assert len(rooms_in(bundle)) == ROOMS
