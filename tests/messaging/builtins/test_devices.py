"""Devices of an entity, as its operations add and remove them: what is refused, and that removals keep their place."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from nacl.signing import SigningKey

from messaging.sealing.test_devices import LAPTOP, all_of, device, link, record_of
from sublet.messaging.builtins.devices import remove_device
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.identity import MAX_STATEMENTS
from sublet.protocol.ezagent.sealing.device_link import DeviceLink
from sublet.protocol.ezagent.sealing.device_statements import DeviceStatement, renew
from sublet.protocol.ezagent.sealing.wire import NO_ID, device_id
from support.tapped_hub import TappedHub

pytestmark = pytest.mark.anyio


async def test_a_link_for_somebody_else_or_of_a_key_that_is_not_held_is_refused(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        alice, bob = await all_of(stack, TappedHub(), tmp_path, "alice", "bob")
        seal_key = bytes(LAPTOP.verify_key.to_curve25519_public_key())
        for wrong, why in (
            ("", "no link"),
            ("sublet-device:AAAA", "no link"),
            ("sublet-device:" + "ä" * 9, "no link"),
            (link(bob.id), "wants to speak for"),
            (DeviceLink(alice.id, bytes(LAPTOP.verify_key), seal_key, b"\0" * 64, "x").encode(), "does not hold"),
            (DeviceLink(alice.id, bytes(LAPTOP.verify_key), seal_key, b"\0" * 64, "").encode(), "name"),
        ):
            with pytest.raises(SubletError, match=why):
                await alice.bus.identity.add_device(link=wrong)
        await alice.bus.identity.add_device(link=link(alice.id))
        with pytest.raises(SubletError, match="already"):
            await alice.bus.identity.add_device(link=link(alice.id))
        for wrong, why in (("", "no one device"), ("phone", "no one device")):
            with pytest.raises(SubletError, match=why):
                await alice.bus.identity.remove_device(device=wrong)
        first = device_id(bytes((await record_of(alice, alice.id)).key)).hex()
        with pytest.raises(SubletError, match="does not remove itself"):
            await alice.bus.identity.remove_device(device=first)


async def test_as_many_are_added_as_can_be_removed_again(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        (alice,) = await all_of(stack, TappedHub(), tmp_path, "alice")
        added = MAX_STATEMENTS // 2
        links = [link(alice.id, SigningKey(bytes([number + 1]) * 32), f"d{number}") for number in range(added + 1)]
        for text in links[:added]:
            await alice.bus.identity.add_device(link=text)
        with pytest.raises(SubletError, match="too many devices"):
            await alice.bus.identity.add_device(link=links[added])
        for number in range(added):
            await alice.bus.identity.remove_device(device=f"d{number}")
        assert [one["first"] for one in await alice.bus.identity.devices()] == [True]
        assert len((await record_of(alice, alice.id)).statements) == MAX_STATEMENTS
        assert remove_device.__doc__


async def test_a_device_that_can_not_be_removed_any_more_is_not_said_to_be(tmp_path: Path) -> None:
    """A device that was found has filled what is kept, and the one that removes it is not the first."""
    async with AsyncExitStack() as stack:
        hub = TappedHub()
        (alice,) = await all_of(stack, hub, tmp_path, "alice")
        lost = SigningKey(b"\5" * 32)
        for text in (link(alice.id), link(alice.id, lost, "lost")):
            await alice.bus.identity.add_device(link=text)
        laptop = await stack.enter_async_context(device(alice, hub, tmp_path))
        record, last = await record_of(alice, alice.id), NO_ID
        said: list[DeviceStatement] = []
        while len(record.statements) + len(said) < MAX_STATEMENTS:
            said.append(renew(lost, alice.id, last, bytes(lost.verify_key.to_curve25519_public_key())))
            last = said[-1].id
        flooded = record.with_statements(said).encode()
        await laptop.service.on_engine(lambda engine: engine.intake.learn(flooded))
        with pytest.raises(SubletError, match="still speaks for you"):
            await laptop.bus.identity.remove_device(device="lost")
        assert [one["name"] for one in await laptop.bus.identity.devices()].count("lost") == 1
        await alice.service.on_engine(lambda engine: engine.intake.learn(flooded))
        await alice.bus.identity.remove_device(device="lost")
        assert [one["name"] for one in await alice.bus.identity.devices()] == ["", "laptop"]
