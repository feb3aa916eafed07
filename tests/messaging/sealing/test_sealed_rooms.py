"""Rooms that are sealed for their members, whole services on a bus of which every byte is looked at."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import pytest

from sublet.messaging.engine.engine import Engine
from sublet.protocol.errors import SubletError
from support.members import SECONDS, Member, member, room_of
from support.tapped_hub import TappedHub

pytestmark = pytest.mark.anyio
PLANTED = "the planted words"
ENCRYPTED = {"encryption": "members"}


async def all_of(stack: AsyncExitStack, hub: TappedHub, path: Path, *names: str) -> list[Member]:
    return [await stack.enter_async_context(member(name, number, hub, path)) for number, name in enumerate(names, 1)]


def _knows(engine: Engine, entity: str) -> bool:
    return engine.keyring.record(entity) is not None


async def sealed_room(*members: Member) -> str:
    """Return a room that is sealed before anything is said in it."""
    room = await room_of(*members)
    for other in members[1:]:  # keys are sealed for those whose key is known
        with anyio.fail_after(SECONDS):
            while not await members[0].service.on_engine(partial(_knows, entity=other.id)):
                await anyio.sleep(0.05)
    await members[0].bus.room.update_config(room_id=room, changes=ENCRYPTED)
    for one in members:
        with anyio.fail_after(SECONDS):
            while (await one.bus.room.get(room_id=room))["config"]["encryption"] != "members":
                await one.service.asking.room(room)
    return room


async def test_members_talk_and_nothing_of_it_is_on_the_bus(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob = await all_of(stack, hub, tmp_path, "alice", "bob")
        room = await sealed_room(alice, bob)
        await alice.bus.message.send(room_id=room, body=f"{PLANTED} of alice")
        await bob.until(room, lambda bodies: bodies == [f"{PLANTED} of alice"])
        await bob.bus.message.send(room_id=room, body=f"{PLANTED} of bob")
        await alice.until(room, lambda bodies: len(bodies) == 2)
        counts = await bob.service.counts()
    assert not hub.shows(PLANTED)
    assert hub.sealed > 0
    assert counts.get("unopened", 0) == 0


async def test_the_words_would_be_seen_if_the_room_were_not_sealed(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob = await all_of(stack, hub, tmp_path, "alice", "bob")
        room = await room_of(alice, bob)
        await alice.bus.message.send(room_id=room, body=PLANTED)
        await bob.until(room, lambda bodies: bodies == [PLANTED])
    assert hub.shows(PLANTED)
    assert hub.sealed == 0


async def test_whoever_was_removed_opens_nothing_that_is_said_afterwards(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob, carol = await all_of(stack, hub, tmp_path, "alice", "bob", "carol")
        room = await sealed_room(alice, bob, carol)
        await alice.bus.message.send(room_id=room, body="before")
        for one in (bob, carol):
            await one.until(room, lambda bodies: bodies == ["before"])
        await alice.bus.room.kick(room_id=room, entity=carol.id)
        await gone(carol, room)
        await gone(bob, room, carol.id)
        for number, one in enumerate((alice, bob)):
            await one.bus.message.send(room_id=room, body=f"{PLANTED} {number}")
        for one in (alice, bob):
            await one.until(room, lambda bodies: len(bodies) == 3)
        opened = await carol.service.on_engine(lambda engine: hub.opened_by(engine, room))
        by_bob = await bob.service.on_engine(lambda engine: hub.opened_by(engine, room))
    assert not hub.shows(PLANTED)
    assert PLANTED.encode() not in opened
    assert b"before" in opened
    assert by_bob.count(PLANTED.encode()) >= 2


async def gone(asked: Member, room: str, entity: str | None = None) -> None:
    """Wait until somebody knows that a member is one no more."""
    with anyio.fail_after(SECONDS):
        while (entity or asked.id) in await asked.service.on_engine(lambda engine: engine.rooms.state(room).members()):
            await anyio.sleep(0.05)


async def test_who_comes_later_reads_what_was_said_and_is_read(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob, carol = await all_of(stack, hub, tmp_path, "alice", "bob", "carol")
        room = await sealed_room(alice, bob)
        await alice.bus.message.send(room_id=room, body=f"{PLANTED} before")
        await bob.until(room, lambda bodies: len(bodies) == 1)
        await bob.bus.room.invite(room_id=room, entity=carol.id)
        await carol.until(room, lambda bodies: bodies == [f"{PLANTED} before"])
        await carol.bus.message.send(room_id=room, body=f"{PLANTED} of carol")
        for one in (alice, bob):
            await one.until(room, lambda bodies: len(bodies) == 2)
        with anyio.fail_after(SECONDS):
            while not await carol.service.on_engine(lambda engine: engine.seals.writing_key(room)):
                await anyio.sleep(0.05)
        keys = [await one.service.on_engine(lambda engine: engine.seals.writing_key(room)) for one in (alice, carol)]
    assert keys[0] == keys[1]
    assert not hub.shows(PLANTED)


async def test_a_daemon_that_was_away_goes_on_after_its_start(tmp_path: Path) -> None:
    hub = TappedHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        async with member("bob", 2, hub, tmp_path) as bob:
            room = await sealed_room(alice, bob)
            await bob.bus.message.send(room_id=room, body=f"{PLANTED} 1")
            await alice.until(room, lambda bodies: len(bodies) == 1)
        await alice.bus.message.send(room_id=room, body=f"{PLANTED} 2")
        async with member("bob", 3, hub, tmp_path) as bob:
            await bob.until(room, lambda bodies: len(bodies) == 2)
            await bob.bus.message.send(room_id=room, body=f"{PLANTED} 3")
            await alice.until(room, lambda bodies: len(bodies) == 3)
            assert (await bob.service.counts()).get("unopened", 0) == 0
    assert not hub.shows(PLANTED)


async def test_the_encryption_of_a_room_is_raised_and_never_lowered(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        (alice,) = await all_of(stack, hub, tmp_path, "alice")
        room = await sealed_room(alice)
        with pytest.raises(SubletError, match="never lowered"):
            await alice.bus.room.update_config(room_id=room, changes={"encryption": "transport_only"})
        with pytest.raises(SubletError, match="transport_only, or members"):
            await alice.bus.room.update_config(room_id=room, changes={"encryption": "none"})
        await alice.bus.room.update_config(room_id=room, changes=ENCRYPTED)


async def test_what_is_said_in_passing_and_acknowledged_is_sealed_too(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob = await all_of(stack, hub, tmp_path, "alice", "bob")
        room = await sealed_room(alice, bob)
        hub.published.clear()
        await alice.bus.message.send(room_id=room, body=PLANTED)
        await bob.until(room, lambda bodies: len(bodies) == 1)
        with anyio.fail_after(SECONDS):
            while not hub.keys_sealed(f"ezagent/{room}/delivery"):
                await anyio.sleep(0.05)
        plain = hub.keys_open(f"ezagent/{room}/")
    assert plain <= {f"ezagent/{room}/ext/sealing/updates"}


async def test_an_offer_of_a_sealed_room_is_read_by_whom_it_is_for_alone(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob = await all_of(stack, hub, tmp_path, "alice", "bob")
        room = await sealed_room(alice)
        await alice.bus.room.update_config(room_id=room, changes={"name": PLANTED})
        await alice.bus.room.invite(room_id=room, entity=bob.id)
        with anyio.fail_after(SECONDS):
            while [one["name"] for one in await bob.bus.room.list()] != [PLANTED]:
                await anyio.sleep(0.05)
    assert not hub.shows(PLANTED)
