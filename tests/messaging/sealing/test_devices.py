"""Several devices that speak as one entity: whole services on a bus of which every byte is looked at."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from nacl.signing import SigningKey

from messaging.sealing.test_sealed_rooms import ENCRYPTED, _knows
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.engine.engine import Engine
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.service import MessagingService
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.identity import EntityRecord
from sublet.protocol.ezagent.sealing.device_link import DeviceLink
from sublet.protocol.ezagent.sealing.device_statements import prove_held
from support.consents import TakesAll
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub
from support.tapped_hub import TappedHub

pytestmark = pytest.mark.anyio
PLANTED = "the planted words"
LAPTOP = SigningKey(b"\7" * 32)
"""The key of the second daemon."""


def link(entity: str, key: SigningKey = LAPTOP, name: str = "laptop") -> str:
    """Return what a new device shows."""
    seal_key = bytes(key.verify_key.to_curve25519_public_key())
    return DeviceLink(entity, bytes(key.verify_key), seal_key, prove_held(key, entity, seal_key), name).encode()


async def record_of(who: Member, entity: str) -> EntityRecord:
    found = await who.service.on_engine(lambda engine: engine.keyring.record(entity))
    assert found is not None
    return found


@asynccontextmanager
async def device(
    of: Member, hub: MemoryHub, path: Path, client: int = 7, key: SigningKey = LAPTOP, name: str = "laptop"
) -> AsyncIterator[Member]:
    """Run the daemon of a second device, which knows no more than the entity's record."""
    record, network = await record_of(of, of.id), hub.join()
    (path / name).mkdir(exist_ok=True)
    service = MessagingService(
        path / name / "rooms.db",
        Registry([*BUILT_INS, *EXTENSIONS]),
        network,
        [LocalEntity(record, key, client)],
        lambda: time.time_ns() // 1_000_000,
        lambda _: True,
        consent=TakesAll(),
    )
    async with service.running():
        other = Member("alice", client, service, network)
        assert other.id == of.id
        yield other


async def all_of(stack: AsyncExitStack, hub: MemoryHub, path: Path, *names: str) -> list[Member]:
    for name in names:
        (path / name).mkdir()
    return [
        await stack.enter_async_context(member(name, number, hub, path / name, more=EXTENSIONS))
        for number, name in enumerate(names, 1)
    ]


async def sealed(*members: Member) -> str:
    room = await room_of(*members)
    for other in members[1:]:
        with anyio.fail_after(SECONDS):
            while not await members[0].service.on_engine(partial(_knows, entity=other.id)):
                await anyio.sleep(0.05)
    await members[0].bus.room.update_config(room_id=room, changes=ENCRYPTED)
    for one in members:
        with anyio.fail_after(SECONDS):
            while (await one.bus.room.get(room_id=room))["config"]["encryption"] != "members":
                await one.service.asking.room(room)
    return room


async def comes(who: Member, room: str) -> None:
    """Wait until a device has taken up a room of its entity."""
    with anyio.fail_after(SECONDS):
        while room not in [one["room_id"] for one in await who.bus.room.list()]:
            await anyio.sleep(0.05)


async def knows(who: Member, entity: str, count: int) -> None:
    """Wait until somebody knows how many devices an entity has."""

    def seen(engine: Engine) -> int:
        found = engine.keyring.devices(entity)
        return len(found.devices) if found is not None else 0

    with anyio.fail_after(SECONDS):
        while await who.service.on_engine(seen) != count:
            await anyio.sleep(0.05)


async def added(first: Member, text: str) -> None:
    await first.bus.identity.add_device(link=text)
    await first.service.devices.tell(first.id)


async def test_two_devices_speak_as_one_entity_with_a_third_member(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob = await all_of(stack, hub, tmp_path, "alice", "bob")
        room = await sealed(alice, bob)
        await alice.bus.message.send(room_id=room, body=f"{PLANTED} before")
        await bob.until(room, lambda bodies: len(bodies) == 1)
        await added(alice, link(alice.id))
        laptop = await stack.enter_async_context(device(alice, hub, tmp_path))
        await comes(laptop, room)
        await laptop.until(room, lambda bodies: bodies == [f"{PLANTED} before"])
        await knows(bob, alice.id, 2)
        await laptop.bus.message.send(room_id=room, body=f"{PLANTED} of the laptop")
        for one in (alice, bob):
            await one.until(room, lambda bodies: len(bodies) == 2)
        await bob.bus.message.send(room_id=room, body=f"{PLANTED} of bob")
        for one in (alice, laptop):
            await one.until(room, lambda bodies: len(bodies) == 3)
        refs = (await bob.bus.timeline.list(room_id=room))["refs"]
        assert [ref["author"] for ref in refs] == [alice.id, alice.id, bob.id]
        listed = await laptop.bus.identity.devices()
        assert [(one["name"], one["this"], one["first"]) for one in listed] == [
            ("", False, True),
            ("laptop", True, False),
        ]
        with anyio.fail_after(SECONDS):
            while not await laptop.service.on_engine(lambda engine: engine.seals.writing_key(room)):
                await anyio.sleep(0.05)
        keys = [
            await one.service.on_engine(lambda engine: engine.seals.writing_key(room)) for one in (alice, bob, laptop)
        ]
        assert keys[0] == keys[1] == keys[2]
        assert not bob.service.contradicted
    assert not hub.shows(PLANTED)


async def test_a_removed_device_opens_nothing_further_and_is_heard_no_more(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob = await all_of(stack, hub, tmp_path, "alice", "bob")
        room = await sealed(alice, bob)
        await added(alice, link(alice.id))
        laptop = await stack.enter_async_context(device(alice, hub, tmp_path))
        await comes(laptop, room)
        await knows(bob, alice.id, 2)
        await laptop.bus.message.send(room_id=room, body="before")
        for one in (alice, bob):
            await one.until(room, lambda bodies: bodies == ["before"])
        hub.published.clear()
        gone = await alice.bus.identity.remove_device(device="laptop")
        assert gone["name"] == "laptop"
        await alice.service.devices.tell(alice.id)
        await knows(bob, alice.id, 1)
        for number, one in enumerate((alice, bob)):
            await one.bus.message.send(room_id=room, body=f"{PLANTED} {number}")
        for one in (alice, bob):
            await one.until(room, lambda bodies: len(bodies) == 3)
        opened = await laptop.service.on_engine(lambda engine: hub.opened_by(engine, room))
        by_bob = await bob.service.on_engine(lambda engine: hub.opened_by(engine, room))
        assert PLANTED.encode() not in opened
        assert by_bob.count(PLANTED.encode()) == 2
        await laptop.service.asking.key(alice.id)
        with pytest.raises(SubletError):
            await laptop.bus.message.send(room_id=room, body="after")
        with pytest.raises(SubletError, match="for good"):
            await alice.bus.identity.add_device(link=link(alice.id))
        assert await alice.bodies(room) == await bob.bodies(room) == ["before", f"{PLANTED} 0", f"{PLANTED} 1"]
    assert not hub.shows(PLANTED)


async def test_who_comes_later_verifies_what_a_removed_device_has_said(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob, carol = await all_of(stack, hub, tmp_path, "alice", "bob", "carol")
        room = await sealed(alice, bob)
        await added(alice, link(alice.id))
        laptop = await stack.enter_async_context(device(alice, hub, tmp_path))
        await comes(laptop, room)
        await laptop.bus.message.send(room_id=room, body="of the laptop")
        for one in (alice, bob):
            await one.until(room, lambda bodies: bodies == ["of the laptop"])
        await alice.bus.identity.remove_device(device="laptop")
        await alice.service.devices.tell(alice.id)
        await knows(bob, alice.id, 1)
        await alice.bus.room.invite(room_id=room, entity=carol.id)
        await carol.until(room, lambda bodies: bodies == ["of the laptop"])
        await carol.bus.message.send(room_id=room, body="of carol")
        for one in (alice, bob):
            await one.until(room, lambda bodies: bodies == ["of the laptop", "of carol"])


async def test_a_room_that_nobody_else_is_in_comes_to_the_other_device_too(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        (alice,) = await all_of(stack, hub, tmp_path, "alice")
        before = (await alice.bus.room.create(name="before"))["room_id"]
        await added(alice, link(alice.id))
        laptop = await stack.enter_async_context(device(alice, hub, tmp_path))
        await comes(laptop, before)
        after = (await alice.bus.room.create(name="after", encryption="members"))["room_id"]
        await comes(laptop, after)
        await laptop.bus.message.send(room_id=after, body=PLANTED)
        await alice.until(after, lambda bodies: bodies == [PLANTED])
    assert not hub.shows(PLANTED)


async def test_drafts_profile_reading_and_watches_follow_to_the_other_device(tmp_path: Path) -> None:
    hub = TappedHub()
    async with AsyncExitStack() as stack:
        alice, bob = await all_of(stack, hub, tmp_path, "alice", "bob")
        room = await sealed(alice, bob)
        await added(alice, link(alice.id))
        laptop = await stack.enter_async_context(device(alice, hub, tmp_path))
        await comes(laptop, room)
        sent = (await bob.bus.message.send(room_id=room, body="read me"))["ref_id"]
        for one in (alice, laptop):
            await one.until(room, lambda bodies: bodies == ["read me"])
        await alice.bus.profile.update(frontmatter={"display_name": "Alice"}, body="words")
        await alice.bus.drafts.save(room_id=room, body="half a sentence")
        await alice.bus.watch.set(room_id=room, ref_id=sent)
        await alice.bus.receipts.update(room_id=room, ref_id=sent)
        with anyio.fail_after(SECONDS):
            while True:
                await laptop.service.asking.room(room)
                await laptop.service.asking.document(f"ezagent/{room}/ext/draft/{alice.id}")
                await laptop.service.asking.document(f"ezagent/{alice.id}/ext/profile")
                found = (
                    (await laptop.bus.drafts.load(room_id=room) or {}).get("body"),
                    (await laptop.bus.profile.get(entity=alice.id))["frontmatter"].get("display_name"),
                    bool(await laptop.bus.watch.list()),
                    (await laptop.bus.receipts.summary(room_id=room))["unread"],
                )
                if found == ("half a sentence", "Alice", True, 0):
                    break
                await anyio.sleep(0.3)
