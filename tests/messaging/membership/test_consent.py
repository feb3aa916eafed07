"""Invitations are asked, not done: what waits, what is accepted, declined and taken back, and what the others see."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from sublet.messaging.membership.answering import TELL_AGAIN_SECONDS
from sublet.messaging.membership.consent import AskAlways
from sublet.messaging.ports.invitation_store import Answer
from sublet.protocol.ezagent.bundle import Bundle
from support.members import SECONDS, Member, member
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio
ASKS = AskAlways()


async def waiting(one: Member, count: int = 1) -> list[str]:
    """Return the rooms of the invitations that wait, once there are so many."""
    with anyio.fail_after(SECONDS):
        while True:
            found = [each.room_id for each in await one.service.invited.all() if each.answer is Answer.PENDING]
            if len(found) == count:
                return found
            await anyio.sleep(0.01)


async def standing(one: Member, room: str, entity: str, wanted: str | None) -> None:
    """Wait until somebody sees what became of an invitation."""
    with anyio.fail_after(SECONDS):
        while (await one.bus.room.get(room_id=room))["invited"].get(entity) != wanted:
            await anyio.sleep(0.01)


async def test_an_invitation_shows_name_and_members_and_nothing_of_the_room_is_here(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path, consent=ASKS) as bob:
        room = (await alice.bus.room.create(name="Plans", invite=[bob.id]))["room_id"]
        await alice.bus.message.send(room_id=room, body="secret")
        assert await waiting(bob) == [room]
        (found,) = await bob.service.invited.all()
        assert (found.name, found.by, found.whom) == ("Plans", alice.id, (bob.id,))
        assert set(found.members) == {alice.id, bob.id}
        assert await bob.bus.room.list() == []
        assert await bob.bodies(room) == []
        heard = await bob.service.on_engine(lambda engine: engine.store.rooms())
        assert heard == []
        assert not [pattern for pattern, _ in bob.network._heard.values() if room in pattern]
        assert not [pattern for pattern, _ in bob.network._served.values() if room in pattern]
        await standing(alice, room, bob.id, "pending")
        events = (await bob.service.watch(bob.id, 0, 1.0))["events"]
        assert [(event["kind"], event["by"]) for event in events] == [("room.invited", alice.id)]


async def test_who_accepts_is_in_the_room_and_the_inviter_sees_it(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path, consent=ASKS) as bob:
        room = (await alice.bus.room.create(name="Plans", invite=[bob.id]))["room_id"]
        await waiting(bob)
        await standing(alice, room, bob.id, "pending")
        assert await bob.service.invited.accept(room)
        await standing(alice, room, bob.id, None)
        assert bob.id in (await alice.bus.room.get(room_id=room))["members"]
        await alice.bus.message.send(room_id=room, body="hello")
        await bob.until(room, lambda bodies: bodies == ["hello"])
        assert await bob.service.invited.all() == []


async def test_a_no_is_told_and_does_not_come_back(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path, consent=ASKS) as bob:
        room = (await alice.bus.room.create(name="Plans", invite=[bob.id]))["room_id"]
        await waiting(bob)
        await bob.service.invited.decline(room)
        await standing(alice, room, bob.id, "declined")
        assert bob.id not in (await alice.bus.room.get(room_id=room))["members"]
        await alice.bus.room.invite(room_id=room, entity=bob.id)
        await bob.service._joining.ask(bob.id)
        (found,) = await bob.service.invited.all()
        assert found.answer is Answer.DECLINED
        assert await bob.bus.room.list() == []


async def test_a_no_that_nobody_could_be_told_of_is_told_later(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        async with member("bob", 2, hub, tmp_path, consent=ASKS) as bob:
            room = (await alice.bus.room.create(name="Plans", invite=[bob.id]))["room_id"]
            await waiting(bob)
            hub.cut(alice.network, bob.network)
            await bob.service.invited.decline(room)
            assert not (await bob.service.invited.all())[0].is_told
        hub.heal()
        async with member("bob", 3, hub, tmp_path, consent=ASKS) as bob:
            await standing(alice, room, bob.id, "declined")


async def test_who_accepts_while_the_inviter_is_away_is_in_the_room_as_it_was_offered(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path, consent=ASKS) as bob:
        room = (await alice.bus.room.create(name="Plans", invite=[bob.id]))["room_id"]
        await waiting(bob)
        hub.cut(alice.network, bob.network)
        assert await bob.service.invited.accept(room)
        assert [one["name"] for one in await bob.bus.room.list()] == ["Plans"]
        await alice.bus.message.send(room_id=room, body="meanwhile")
        hub.heal()
        await bob.until(room, lambda bodies: bodies == ["meanwhile"])
        await standing(alice, room, bob.id, None)


async def test_an_invitation_that_is_taken_back_is_gone(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path, consent=ASKS) as bob:
        create = alice.bus.room.create
        rooms = [(await create(name=name, invite=[bob.id]))["room_id"] for name in ("here", "away")]
        await waiting(bob, 2)
        await alice.bus.room.kick(room_id=rooms[0], entity=bob.id)
        assert await waiting(bob) == rooms[1:]
        hub.cut(alice.network, bob.network)
        await alice.bus.room.kick(room_id=rooms[1], entity=bob.id)
        await alice.bus.room.update_config(room_id=rooms[1], changes={"name": "what bob is not told"})
        hub.heal()
        with anyio.fail_after(SECONDS):
            while await bob.service.invited.all():
                await anyio.sleep(0.01)


async def test_what_waits_is_there_after_a_restart_and_can_be_accepted(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        async with member("bob", 2, hub, tmp_path, consent=ASKS) as bob:
            room = (await alice.bus.room.create(name="Plans", invite=[bob.id]))["room_id"]
            await waiting(bob)
        async with member("bob", 3, hub, tmp_path, consent=ASKS) as bob:
            assert await waiting(bob) == [room]
            assert await bob.service.invited.accept(room)
            await standing(alice, room, bob.id, None)


async def test_who_declined_may_still_come_in_when_invited_again(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path, consent=ASKS) as bob:
        room = (await alice.bus.room.create(name="Plans", invite=[bob.id]))["room_id"]
        await waiting(bob)
        await bob.service.invited.decline(room)
        await standing(alice, room, bob.id, "declined")
        await bob.service.invited.accept(room)  # it is here at once where an offer of before the no is still under way
        await alice.bus.room.invite(room_id=room, entity=bob.id)
        with anyio.fail_after(SECONDS):
            while not await bob.bus.room.list():
                await anyio.sleep(0.01)
        await alice.bus.message.send(room_id=room, body="welcome")
        await bob.until(room, lambda bodies: bodies == ["welcome"])
        await bob.bus.message.send(room_id=room, body="thanks")
        await alice.until(room, lambda bodies: bodies == ["welcome", "thanks"])
        assert await alice.service.on_engine(lambda engine: engine.intake.counts.get("forked", 0)) == 0


async def test_a_no_is_told_again_only_after_a_while(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path, consent=ASKS) as bob:
        room = (await alice.bus.room.create(name="Plans", invite=[bob.id]))["room_id"]
        await waiting(bob)
        await bob.service.invited.decline(room)
        told = bob.service.invited._told[room]
        await bob.service.invited.refuse((await bob.service.invited.all())[0], Bundle(()))
        assert bob.service.invited._told[room] == told
        bob.service.invited._told[room] -= TELL_AGAIN_SECONDS
        await bob.service.invited.refuse((await bob.service.invited.all())[0], Bundle(()))
        assert bob.service.invited._told[room] > told
