"""What people have said yes or no to outlives the database: rooms come back by themselves, and a no stays one."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import anyio
import pytest

from sublet.messaging.calls import room_calls
from sublet.messaging.membership.consent import AskAlways
from sublet.messaging.mending import agreed as agreed_module
from sublet.messaging.mending.agreed import WANTED_MS, Agreed
from sublet.messaging.ports.agreed import WasAgreed
from sublet.messaging.ports.invitation_store import Answer, Invitation
from support.members import SECONDS, Member, member
from support.memory_network import MemoryHub
from support.rooms import NOW_MS

pytestmark = pytest.mark.anyio
ROOMS = [f"01a2212b-1000-7167-9394-011daa8147{number:02}" for number in range(4)]
HOME = "node-of-alice"


def bob_on(hub: MemoryHub, path: Path, client: int) -> AbstractAsyncContextManager[Member]:
    """Return Bob, who is asked about each room, with what he has agreed to kept beside."""
    kept = Agreed(path / "bob-agreed.db")
    return member("bob", client, hub, path, consent=AskAlways(), agreed=kept)


def lose(path: Path) -> None:
    """Take the database away as if nothing of it could be read."""
    for one in path.glob("bob.db*"):
        one.unlink()


async def invited(alice: Member, bob: Member) -> str:
    """Return a room of Alice with something in it, to which Bob is invited."""
    room: str = (await alice.bus.room.create(name="r", invite=[bob.id]))["room_id"]
    await alice.bus.message.send(room_id=room, body="hello")
    with anyio.fail_after(SECONDS):
        while room not in [one.room_id for one in await bob.service.invited.all()]:
            await anyio.sleep(0.01)
    return room


async def test_rooms_come_back_without_being_accepted_again(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        async with bob_on(hub, tmp_path, 2) as bob:
            room = await invited(alice, bob)
            await bob.service.invited.accept(room)
            await bob.until(room, lambda bodies: bodies == ["hello"])
            own = (await bob.bus.room.create(name="his", invite=[alice.id]))["room_id"]
            await bob.bus.message.send(room_id=own, body="mine")
            await alice.until(own, lambda bodies: bodies == ["mine"])
        lose(tmp_path)
        async with bob_on(hub, tmp_path, 3) as bob:
            await bob.until(room, lambda bodies: bodies == ["hello"])
            await bob.until(own, lambda bodies: bodies == ["mine"])
            assert await bob.service.invited.all() == []


async def test_a_no_stays_one(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        async with bob_on(hub, tmp_path, 2) as bob:
            room = await invited(alice, bob)
            hub.cut(alice.network, bob.network)
            await bob.service.invited.decline(room)
        lose(tmp_path)
        async with bob_on(hub, tmp_path, 3) as bob:
            [found] = await bob.service.invited.all()
            assert (found.room_id, found.answer) == (room, Answer.DECLINED)


async def test_what_was_forgotten_does_not_come_back(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        async with bob_on(hub, tmp_path, 2) as bob:
            room = await invited(alice, bob)
            await bob.service.invited.accept(room)
            await bob.until(room, lambda bodies: bodies == ["hello"])
            await bob.service.forgetting.rooms([room])
        lose(tmp_path)
        async with bob_on(hub, tmp_path, 3) as bob:
            assert await bob.service.on_engine(lambda engine: set(engine.here.ids)) == set()


async def test_what_the_database_has_forgotten_is_let_go_here_too(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with bob_on(hub, tmp_path, 2) as bob:
        room = (await bob.service.call(bob.id, room_calls.create, name="his"))["room_id"]
        await bob.service.forgetting.rooms([room])
    kept = Agreed(tmp_path / "bob-agreed.db")
    kept.taken_up(room)  # as after a kill between both
    async with bob_on(hub, tmp_path, 3) as bob:
        assert await bob.service.on_engine(lambda engine: set(engine.here.ids)) == set()
    assert kept.begin([], [], 0).rooms == ()


def said(room: str, answer: Answer) -> Invitation:
    return Invitation(room, HOME, "@alice:x", ("@bob:y",), "name", ("@alice:x",), 1, answer, NOW_MS, kept=b"config")


def test_it_holds_ids_and_answers_and_nothing_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "agreed.db"
    kept = Agreed(path, lambda: NOW_MS)
    kept.taken_up(ROOMS[0])
    kept.answered(said(ROOMS[1], Answer.DECLINED))
    kept.answered(said(ROOMS[2], Answer.PENDING))
    assert b"config" not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    found = kept.begin([], [], NOW_MS)
    assert found.rooms == (ROOMS[0],)
    assert [(one.room_id, one.answer, one.kept) for one in found.answers] == [(ROOMS[1], Answer.DECLINED, b"")]


def test_what_the_database_says_of_answers_counts_where_it_says_anything(tmp_path: Path) -> None:
    kept = Agreed(tmp_path / "agreed.db", lambda: NOW_MS)
    kept.answered(said(ROOMS[1], Answer.DECLINED))
    assert kept.begin([ROOMS[0]], [], NOW_MS) == WasAgreed()
    assert kept.begin([], [], NOW_MS) == WasAgreed((ROOMS[0],))


def test_a_room_that_nobody_has_is_looked_for_no_longer_than_a_month(tmp_path: Path) -> None:
    kept = Agreed(tmp_path / "agreed.db", lambda: NOW_MS)
    kept.taken_up(ROOMS[0])
    assert kept.begin([], [], NOW_MS + WANTED_MS).rooms == (ROOMS[0],)
    assert kept.begin([], [], NOW_MS + WANTED_MS + 1).rooms == ()
    assert kept.begin([], [], NOW_MS).rooms == ()


def test_answers_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreed_module, "MAX_ANSWERS", 2)
    kept = Agreed(tmp_path / "agreed.db", lambda: NOW_MS)
    for room in ROOMS:
        kept.answered(said(room, Answer.ACCEPTED))
    assert len(kept.begin([], [], NOW_MS).answers) == 2


@pytest.mark.parametrize("how", ["no database", "a torn answer"])
def test_a_file_that_can_t_be_read_is_begun_anew(tmp_path: Path, how: str) -> None:
    path = tmp_path / "agreed.db"
    kept = Agreed(path, lambda: NOW_MS)
    kept.answered(said(ROOMS[1], Answer.DECLINED))
    if how == "no database":
        path.write_bytes(b"x" * 8_192)
    else:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE answers SET said = '[1'")
    assert kept.begin([], [], NOW_MS) == WasAgreed()
    kept.taken_up(ROOMS[0])
    assert kept.begin([], [], NOW_MS).rooms == (ROOMS[0],)


def test_a_disk_that_takes_nothing_fails_nobody(tmp_path: Path) -> None:
    kept = Agreed(tmp_path / "gone" / "agreed.db")
    kept.taken_up(ROOMS[0])
    kept.let_go(ROOMS[0])
    assert kept.begin([ROOMS[0]], [], 0) == WasAgreed()
