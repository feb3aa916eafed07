"""What is asked from time to time follows what differs, not what is there: counted in questions and in bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from sublet.messaging.attending import attending
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.membership.catching_up import PERIODS_FOR_QUIET
from sublet.messaging.syncing.answers import inbox
from sublet.protocol.ezagent.keys import doc_id
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio

REFS = 4
"""Of a shard, here."""
ALWAYS = 3
"""Shards that are asked for however much is known: the newest one, the one after it, and that of the month before."""

KINDS = {"config", "root", "index"}
"""Nothing of extensions, and no content that changes."""


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublet.messaging.opening.shards.REFS_PER_SHARD", REFS)


@dataclass
class Asked:
    """What a member has asked others, and what came back."""

    answered: list[tuple[str, int]] = field(default_factory=list)
    """Keys, and bytes of the question and its answers."""

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.answered]

    @property
    def size(self) -> int:
        return sum(size for _, size in self.answered)

    def kinds(self) -> set[str]:
        """Return of what kinds the documents are that were asked for."""
        return {key.split("/", 2)[2].split("/")[0] for key in self.keys}

    def shards(self) -> list[str]:
        """Return the sub-shards that were asked for, without the month."""
        return [key.split("/")[3][7:] for key in self.keys if "/index/" in key]


def counted(one: Member) -> Asked:
    """Count from now on what a member asks."""
    asked, query = Asked(), type(one.network).query

    def counting(key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
        answers = query(one.network, key, payload, timeout_seconds)
        asked.answered.append((key, len(payload) + sum(map(len, answers))))
        return answers

    one.network.query = counting  # type: ignore[method-assign]
    return asked


@asynccontextmanager
async def two(path: Path, hub: MemoryHub) -> AsyncIterator[tuple[Member, Member, str]]:
    async with AsyncExitStack() as stack:
        alice, bob = [
            await stack.enter_async_context(member(name, number, hub, path, more=EXTENSIONS))
            for number, name in enumerate(("alice", "bob"), 1)
        ]
        yield alice, bob, await room_of(alice, bob)


async def said(alice: Member, bob: Member, room: str, count: int) -> list[str]:
    """Let Alice say something, of which the first messages are edited; return the refs once Bob has them."""
    refs = [(await alice.bus.message.send(room_id=room, body=str(number)))["ref_id"] for number in range(count)]
    for ref in refs[: count // 2]:
        await alice.bus.mutable.update(room_id=room, ref_id=ref, body="edited")
    await bob.until(room, lambda bodies: len(bodies) == count and bodies.count("edited") == count // 2)
    return refs


async def quiet(asked: Asked, one: Member, room: str) -> None:
    """Wait until nothing is asked but what always is."""
    with anyio.fail_after(SECONDS):
        while True:
            asked.answered.clear()
            await one.service.asking.room(room)
            if asked.kinds() <= KINDS and len(asked.keys) <= len(KINDS) - 1 + ALWAYS:
                return


async def test_a_room_where_nothing_differs_costs_the_same_however_much_is_in_it(tmp_path: Path) -> None:
    costs: list[tuple[int, int]] = []
    for shards in (2, 12):
        (path := tmp_path / str(shards)).mkdir()
        async with two(path, MemoryHub()) as (alice, bob, room):
            await said(alice, bob, room, shards * REFS - 1)
            asked = counted(bob)
            await quiet(asked, bob, room)
            costs.append((len(asked.keys), asked.size))
    (few, small), (many, large) = costs
    assert few == many == 2 + ALWAYS
    assert large - small < 10 * (REFS * 100 + 500), "of a shard and its contents"


async def test_a_full_shard_is_asked_for_when_something_in_it_was_lost(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with two(tmp_path, hub) as (alice, bob, room):
        refs = await said(alice, bob, room, 5 * REFS - 1)
        asked = counted(bob)
        await quiet(asked, bob, room)

        hub.loss = 1.0
        await alice.bus.reactions.add(room_id=room, ref_id=refs[REFS], emoji="👍")
        assert "reactions" not in await bob.bus.timeline.get_ref(room_id=room, ref_id=refs[REFS])
        asked.answered.clear()
        with anyio.fail_after(SECONDS):
            while "reactions" not in await bob.bus.timeline.get_ref(room_id=room, ref_id=refs[REFS]):
                await bob.service.asking.room(room)
        assert set(asked.shards()) == {"", "-004", "-005"}, "what always is asked for, and what differs by its place"


async def test_only_rooms_that_are_new_are_told_to_who_asks_for_its_rooms(tmp_path: Path) -> None:
    others = 20
    async with two(tmp_path, MemoryHub()) as (alice, bob, room):
        for number in range(others):
            await alice.bus.room.create(name=str(number), invite=[bob.id])
        with anyio.fail_after(SECONDS):
            while len(await bob.bus.room.list()) <= others:
                await anyio.sleep(0.01)
        everything = await alice.service.on_engine(lambda engine: inbox(engine, bob.id, ()))
        assert everything is not None
        asked, key = counted(bob), doc_id("inbox", entity_id=bob.id)
        for callback in bob.network.changed:
            callback()
        with anyio.fail_after(SECONDS):
            while key not in asked.keys:
                await anyio.sleep(0.01)
        (size,) = {size for name, size in asked.answered if name == key}
        assert size < len(everything) / 10
        assert room in await bob.service.on_engine(lambda engine: engine.here.ids)


async def test_quiet_rooms_take_turns_and_others_are_asked_for_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member("alice", 1, MemoryHub(), tmp_path) as alice:
        rooms = [(await alice.bus.room.create(name=f"r{number}"))["room_id"] for number in range(5)]
        looked: list[str] = []

        async def look(is_due: Callable[[str], bool] | None = None) -> None:
            looked.extend(room for room in rooms if is_due is not None and is_due(room))

        monkeypatch.setattr(alice.service._catching_up, "everything", look)
        await alice.service._catching_up.look_again(1)
        assert looked == rooms, "they were made just now"
        looked.clear()
        monkeypatch.setattr(attending, "QUIET_SECONDS", -1.0)
        monkeypatch.setattr(alice.service._catching_up, "_month", "2020-01")
        await alice.service._catching_up.look_again(1)
        assert looked == rooms, "a month has begun"
        looked.clear()
        for turn in range(PERIODS_FOR_QUIET):
            await alice.service._catching_up.look_again(turn)
        assert sorted(looked) == sorted(rooms), "each once"
