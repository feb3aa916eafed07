"""Nothing that comes from the network ends messaging while the disk is full, and all of it is there afterwards."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.engine.engine import Engine
from sublet.messaging.extensions import EXTENSIONS
from sublet.protocol.errors import LocalCode, SubletError
from support.members import SECONDS, member, room_of
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio
ROOMY = 1 << 20


def let_grow(engine: Engine, pages: int = 0) -> None:
    """Let the database have so many more pages, as a disk with so much room would."""
    assert isinstance(engine.store, SqliteStore)
    (count,) = engine.store._db.execute("PRAGMA page_count").fetchone()
    engine.store._db.execute(f"PRAGMA max_page_count={count + pages}")


async def test_a_full_disk_ends_nothing_and_loses_nothing(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        await bob.bus.message.send(room_id=room, body="kept")
        await bob.service.on_engine(let_grow)
        with pytest.raises(SubletError, match="full") as refused:
            await bob.bus.message.send(room_id=room, body="x" * 50_000)
        assert refused.value.code == LocalCode.UNAVAILABLE
        for number in range(5):
            await alice.bus.message.send(room_id=room, body=f"{number}" + "x" * 50_000)
        more = [(await alice.bus.room.create(name=f"r{number}", invite=[bob.id]))["room_id"] for number in range(5)]
        for _ in range(3):  # it runs still, although none of it can be kept
            with suppress(SubletError):
                await bob.service.asking.room(room)
            with suppress(SubletError):
                await bob.service._catching_up.everything()
        await bob.service.on_engine(lambda engine: let_grow(engine, ROOMY))
        await bob.until(room, lambda bodies: len(bodies) == 6)
        with anyio.fail_after(SECONDS):
            while {item["room_id"] for item in await bob.bus.room.list()} != {room, *more}:
                await bob.service._catching_up.everything()
        assert await alice.bodies(room) == await bob.bodies(room)
        await bob.bus.message.send(room_id=room, body="goes on")
        await alice.until(room, lambda bodies: "goes on" in bodies)


async def test_what_shared_a_commit_that_failed_is_not_acknowledged(tmp_path: Path) -> None:
    """Whoever edits a text commits what others have begun to write at the same time, and the disk may be full then."""
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path, more=EXTENSIONS) as alice:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        edited = (await alice.bus.message.send(room_id=room, body="before"))["ref_id"]
        await alice.bus.mutable.update(room_id=room, ref_id=edited, body="first edit")
        await alice.service.on_engine(let_grow)
        busy = threading.Event()
        acknowledged: list[str] = []

        async def hold() -> None:
            with suppress(SubletError):  # where it is in one batch with what it holds up
                await alice.service.on_engine(lambda _: busy.wait(SECONDS))

        async def send() -> None:
            with suppress(SubletError):
                await alice.bus.message.send(room_id=room, body="x" * 50_000)
                acknowledged.append("a message")

        async def edit() -> None:
            with suppress(SubletError):
                await alice.bus.mutable.update(room_id=room, ref_id=edited, body="another")
                acknowledged.append("an edit")

        async with anyio.create_task_group() as group:
            for one in (hold, send, edit, edit):
                group.start_soon(one)
                await anyio.wait_all_tasks_blocked()
            busy.set()
        assert acknowledged == []
        assert await alice.bodies(room) == ["first edit"]
