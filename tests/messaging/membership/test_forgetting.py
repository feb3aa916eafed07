"""Forgetting a room: all of it goes, nothing else does, and it comes back only where somebody looks for it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import anyio
import pytest

from sublet.messaging.backends import sqlite_removal
from sublet.messaging.extensions import EXTENSIONS
from sublet.protocol.errors import SubletError
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio
COUNTED = ("log", "entries", "writes", "deletions", "clients", "contents", "documents", "usage", "index_entries")


async def fill(who: Member, room: str) -> str:
    """Say all kinds of things in a room; return one message's id."""
    ref: str = (await who.bus.message.send(room_id=room, body="one", ext={"channels": ["ops"]}))["ref_id"]
    more = {"reply_to": ref, "thread": ref}
    other = (await who.bus.message.send(room_id=room, body="two", ext=more))["ref_id"]
    await who.bus.mutable.update(room_id=room, ref_id=other, body="zwei")
    await who.bus.reactions.add(room_id=room, ref_id=ref, emoji="+1")
    await who.bus.moderation.pin(room_id=room, ref_id=ref)
    await who.bus.watch.set(room_id=room, ref_id=ref)
    return ref


def rows(database: Path) -> dict[str, int]:
    with sqlite3.connect(database) as db:
        return {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in COUNTED}


async def test_all_of_a_room_goes_and_all_else_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_removal, "STEP_ROWS", 3)
    async with member("alice", 1, MemoryHub(), tmp_path, more=EXTENSIONS) as alice:
        kept = await room_of(alice)
        await fill(alice, kept)
        before, shown = rows(tmp_path / "alice.db"), (await alice.bus.timeline.list(room_id=kept, peek=True))["refs"]
        gone = (await alice.bus.room.create(name="over"))["room_id"]
        ref = await fill(alice, gone)
        assert (await alice.service.forgetting.sizes([gone]))[gone] > 1_000
        await alice.service.forgetting.rooms([gone])
        assert rows(tmp_path / "alice.db") == before
        assert [one["room_id"] for one in await alice.bus.room.list()] == [kept]
        for refused in (
            alice.bus.timeline.list(room_id=gone),
            alice.bus.message.send(room_id=gone, body="x"),
            alice.bus.timeline.get_ref(room_id=gone, ref_id=ref),
        ):
            with pytest.raises(SubletError):
                await refused
        assert (await alice.bus.timeline.list(room_id=kept, peek=True))["refs"] == shown
        assert len((await alice.bus.channels.refs(channel="ops"))["refs"]) == 1
        await alice.bus.message.send(room_id=kept, body="three")
        assert len((await alice.service.watch(alice.id, 0, 0.0))["events"]) > 0


async def test_it_is_not_taken_up_again_when_offered_but_when_looked_for(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        async with member("bob", 2, hub, tmp_path) as bob:
            room = await room_of(alice, bob)
            await alice.bus.message.send(room_id=room, body="one")
            await bob.until(room, lambda bodies: bodies == ["one"])
            await bob.service.forgetting.rooms([room])
            await alice.bus.message.send(room_id=room, body="two")
            assert await alice.bodies(room) == ["one", "two"]
        async with member("bob", 3, hub, tmp_path) as bob:
            other = (await alice.bus.room.create(name="other", invite=[bob.id]))["room_id"]
            with anyio.fail_after(SECONDS):
                while not (found := await bob.bus.room.list()):
                    await bob.service.watch(bob.id, 0, 0.1)
            assert [one["room_id"] for one in found] == [other]
            await bob.service.find_room(room)
            await bob.until(room, lambda bodies: bodies == ["one", "two"])
            await bob.bus.message.send(room_id=room, body="three")
            await alice.until(room, lambda bodies: bodies == ["one", "two", "three"])


async def test_it_may_be_looked_for_at_once(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path, more=EXTENSIONS) as alice,
        member("bob", 2, hub, tmp_path, more=EXTENSIONS) as bob,
    ):
        room = await room_of(alice, bob)
        ref = await fill(alice, room)
        await bob.until(room, lambda bodies: len(bodies) == 2)
        for _ in range(2):
            await bob.service.forgetting.rooms([room])
            assert await bob.bus.room.list() == []
            await bob.service.find_room(room)
            await bob.until(room, lambda bodies: bodies == ["one", "zwei"])
        await bob.bus.reactions.add(room_id=room, ref_id=ref, emoji="🎉")
        await alice.bus.message.send(room_id=room, body="three")
        await bob.until(room, lambda bodies: bodies[-1:] == ["three"])
        with anyio.fail_after(SECONDS):
            while True:
                seen = await alice.bus.timeline.get_ref(room_id=room, ref_id=ref)
                if set(seen["reactions"]) == {"👍", "🎉"}:
                    break
                await alice.service.asking.room(room)


async def test_what_was_begun_before_a_kill_is_ended_by_the_next_one(tmp_path: Path) -> None:
    async with member("alice", 1, MemoryHub(), tmp_path) as alice:
        kept = (await alice.bus.room.create(name="kept"))["room_id"]
        before = rows(tmp_path / "alice.db")
        first, second = [(await alice.bus.room.create(name=name))["room_id"] for name in "ab"]
        await alice.bus.message.send(room_id=first, body="one")
        await alice.service.on_engine(lambda engine: engine.later.after_commit(lambda: engine.forget_room(first)))
    async with member("alice", 2, MemoryHub(), tmp_path) as alice:
        assert {one["room_id"] for one in await alice.bus.room.list()} == {kept, second}
        await alice.service.forgetting.rooms([second])
        assert rows(tmp_path / "alice.db") == before
