"""Who was away gets everything that has changed meanwhile, however much else there is and wherever it stands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.syncing.reconciler import sum_up
from support.members import Member, member, room_of
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio

SECONDS = 60
OTHERS = 40
"""Messages that are edited after the one that matters."""


@asynccontextmanager
async def two(path: Path, hub: MemoryHub) -> AsyncIterator[tuple[Member, Member, str]]:
    async with AsyncExitStack() as stack:
        alice, bob = [
            await stack.enter_async_context(member(name, number, hub, path, more=EXTENSIONS))
            for number, name in enumerate(("alice", "bob"), 1)
        ]
        yield alice, bob, await room_of(alice, bob)


async def body(of: Member, room: str, ref: str) -> str | None:
    found: str | None = (await of.bus.timeline.get_ref(room_id=room, ref_id=ref)).get("body")
    return found


async def every_body(of: Member, room: str) -> list[str | None]:
    found: list[str | None] = []
    before = None
    while True:
        page = await of.bus.timeline.list(room_id=room, limit=200, peek=True, before=before)
        found = [ref.get("body") for ref in page["refs"]] + found
        before = page["next_cursor"]
        if before is None:
            return found


async def test_one_older_edit_and_one_shared_text_come_among_many_edited_messages(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with two(tmp_path, hub) as (alice, bob, room):
        refs = [(await alice.bus.message.send(room_id=room, body=str(at)))["ref_id"] for at in range(OTHERS + 2)]
        for at, ref in enumerate(refs):
            await alice.bus.mutable.update(room_id=room, ref_id=ref, body=f"edited {at}")
        await alice.bus.collab.update_acl(room_id=room, ref_id=refs[1], mode="room_members")
        with anyio.fail_after(SECONDS):
            while await every_body(bob, room) != [f"edited {at}" for at in range(OTHERS + 2)]:
                await bob.service.asking.room(room)
        hub.cut(alice.network, bob.network)
        await alice.bus.mutable.update(room_id=room, ref_id=refs[0], body="once more")
        await alice.bus.collab.edit(room_id=room, ref_id=refs[1], index=0, delete=0, insert="shared: ")
        assert await body(bob, room, refs[0]) == "edited 0"
        hub.heal()
        with anyio.fail_after(SECONDS):
            while await body(bob, room, refs[0]) != "once more" or await body(bob, room, refs[1]) != "shared: edited 1":
                await bob.service.asking.room(room)


async def test_all_that_was_sent_and_edited_while_away_comes_and_comes_to_a_new_database_too(tmp_path: Path) -> None:
    count = 400
    hub = MemoryHub()
    async with two(tmp_path, hub) as (alice, bob, room):
        await alice.bus.message.send(room_id=room, body="first")
        await bob.until(room, lambda bodies: bodies == ["first"])
        hub.cut(alice.network, bob.network)
        for at in range(count):
            ref = (await alice.bus.message.send(room_id=room, body=str(at)))["ref_id"]
            await alice.bus.mutable.update(room_id=room, ref_id=ref, body=f"edited {at}")
        hub.heal()
        expected = ["first", *(f"edited {at}" for at in range(count))]
        with anyio.fail_after(SECONDS):
            while await every_body(bob, room) != expected:
                await bob.service.asking.room(room)
        (again := tmp_path / "again").mkdir()
        hub.cut(alice.network, bob.network)
        async with member("bob", 3, hub, again, more=EXTENSIONS) as anew:
            with anyio.fail_after(SECONDS):
                while not await anew.bus.room.list():
                    await anyio.sleep(0.02)
                while await every_body(anew, room) != expected:
                    await anew.service.asking.room(room)


async def test_a_month_that_is_over_is_healed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = MemoryHub()
    async with two(tmp_path, hub) as (alice, bob, room):
        ref = (await alice.bus.message.send(room_id=room, body="old"))["ref_id"]
        await bob.until(room, lambda bodies: bodies == ["old"])
        for one in (alice, bob):  # three months later
            await one.service.on_engine(
                lambda engine: monkeypatch.setattr(type(engine.shards), "current_month", lambda _: "2199-12")
            )
        hub.loss = 1.0
        await alice.bus.reactions.add(room_id=room, ref_id=ref, emoji="👍")
        with anyio.fail_after(SECONDS):
            while "reactions" not in await bob.bus.timeline.get_ref(room_id=room, ref_id=ref):
                await bob.service.asking.room(room)


async def test_a_change_that_nobody_announces_is_found_by_who_is_asked(tmp_path: Path) -> None:
    """Alice asks, and by her root Bob learns that he lacks something."""
    hub = MemoryHub()
    async with two(tmp_path, hub) as (alice, bob, room):
        ref = (await alice.bus.message.send(room_id=room, body="first"))["ref_id"]
        await alice.bus.mutable.update(room_id=room, ref_id=ref, body="second")
        await bob.until(room, lambda bodies: bodies == ["second"])
        hub.loss = 1.0
        await alice.bus.mutable.update(room_id=room, ref_id=ref, body="third")
        with anyio.fail_after(SECONDS):
            while await body(bob, room, ref) != "third":
                await alice.service.asking.room(room)


async def test_nothing_is_stated_before_what_an_older_version_has_written_is_summed_up(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with two(tmp_path, hub) as (alice, bob, room):
        await alice.bus.message.send(room_id=room, body="old")
        await bob.until(room, lambda bodies: bodies == ["old"])
        tree = await alice.service.on_engine(lambda engine: engine.store.tree)
        assert not await sum_up(alice.service.on_engine)
        tree._built, tree._unbuilt = 0, 3  # type: ignore[attr-defined]
        assert await alice.service.on_engine(lambda engine: engine.roots.statement(room)) is None
        assert await sum_up(alice.service.on_engine)
        assert await alice.service.on_engine(lambda engine: engine.roots.statement(room)) is not None
