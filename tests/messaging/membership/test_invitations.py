"""Learning of rooms: all of them, however many, and each at the price of one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest

from sublet.messaging.membership.invitations import rooms_in
from sublet.messaging.membership.joining import MAX_INVITATIONS
from sublet.messaging.syncing import answers
from sublet.protocol.ezagent.bundle import RecordKind, decode_bundle, encode_bundle
from support.members import SECONDS, member
from support.memory_network import MemoryHub
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


async def test_whoever_is_invited_into_a_room_of_long_standing_comes_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MAX_ANSWER_BYTES", 4_096)
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        for number in range(100):  # more than is taken in one turn
            await alice.bus.room.update_config(room_id=room, changes={"name": f"r{number}"})
        await alice.bus.room.invite(room_id=room, entity=bob.id)
        with anyio.fail_after(SECONDS):
            while [one["name"] for one in await bob.bus.room.list()] != ["r99"]:
                await bob.service.watch(bob.id, 0, 0.1)


class Invitation:
    """An invitation to nowhere, and what became of it."""

    key = "ezagent/nowhere"
    payload = encode_bundle(())
    peer = ""

    def __init__(self) -> None:
        self.became: str | None = None

    def reply(self, payload: bytes) -> None:
        self.became = "read"

    def drop(self) -> None:
        self.became = "dropped"


async def test_invitations_that_wait_are_few_and_none_keeps_later_ones_out(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        for _ in range(2):
            given = [Invitation() for _ in range(3 * MAX_INVITATIONS)]
            for one in given:  # no step of the event loop between
                alice.service._joining.invited(one)
            assert [one.became for one in given].count("dropped") == 2 * MAX_INVITATIONS
            with anyio.fail_after(SECONDS):
                while None in [one.became for one in given]:
                    await anyio.sleep(0.01)
            assert [one.became for one in given].count("read") == MAX_INVITATIONS
