"""EXT-12: a draft is its writer's alone, on all devices, until it is sent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import anyio
import pytest
from nacl.signing import SigningKey

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions.drafts import USER_DRAFTS
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.service import MessagingService
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.identity import EntityKind, make_record
from sublet.protocol.ezagent.keys import doc_id
from support.consents import TakesAll
from support.devices import make_device
from support.members import SECONDS, question
from support.memory_network import MemoryHub, MemoryNetwork
from support.rooms import Clock, Peer, entity_key, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, USER_DRAFTS)


def test_a_draft_is_kept_until_it_is_sent_and_never_published() -> None:
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    first = bob.do("message.send", room_id=room, body="well?")["ref_id"]
    alice.hear(bob.published())
    assert alice.do("drafts.load", room_id=room) == {"body": "", "reply_to": None, "updated_at": None}
    alice.published()
    saved = alice.do("drafts.save", room_id=room, body="I th", reply_to=first)
    assert alice.do("drafts.load", room_id=room) == saved
    assert (saved["body"], saved["reply_to"]) == ("I th", first)
    alice.do("drafts.save", room_id=room, body="I think so")
    assert alice.do("drafts.load", room_id=room)["reply_to"] is None
    assert alice.published() == []
    assert bob.do("drafts.load", room_id=room)["body"] == ""
    alice.do("message.send", room_id=room, body="I think so")
    assert alice.do("drafts.load", room_id=room)["body"] == ""
    sent = alice.published()
    assert [item.key.split("/")[2] for item in sent] == ["index"]
    bob.do("drafts.save", room_id=room, body="mine")
    bob.hear(sent)
    assert bob.do("drafts.load", room_id=room)["body"] == "mine", "what others send takes nothing away"
    bob.do("drafts.save", room_id=room, body="")
    assert bob.do("drafts.load", room_id=room)["body"] == ""


def test_what_could_not_be_sent_is_not_kept_and_nobody_keeps_the_draft_of_another() -> None:
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    for wrong in ({"body": "x" * (65 << 10)}, {"body": "\ud800"}, {"body": "x", "reply_to": "../1"}):
        with pytest.raises(SubletError):
            alice.do("drafts.save", room_id=room, **wrong)
    name = doc_id("draft", room_id=room, entity_id=alice.id)
    with pytest.raises(SubletError, match="whoever writes it"):
        bob.engine.writing.set_fields(bob.id, name, [(None, ("body",), "I owe Bob")])
    alice.do("drafts.save", room_id=room, body="private")
    log = alice.store.log_after(alice.engine.documents.open(name).row.number, {}, 1 << 20)[0]
    bob.engine.intake.take([Arrival(raw) for raw in log])
    assert bob.refused() == {"unknown_document": 1}
    stranger = Peer("carol", 9, declarations=WITH)
    for operation, more in (("drafts.load", {}), ("drafts.save", {"body": "x"})):
        with pytest.raises(SubletError, match="no such room"):
            stranger.do(operation, room_id=room, **more)


@pytest.mark.anyio
async def test_another_device_gets_it_and_nobody_else(tmp_path: Path) -> None:
    hub, key, domain = MemoryHub(), entity_key("alice"), entity_key("daemon of alice")
    phone = entity_key("alice's phone")
    me = make_record("alice", EntityKind.AGENT, bytes(key.verify_key), domain, 1).entity_id
    device = make_device(me, "phone", bytes(phone.verify_key), key)
    record = make_record("alice", EntityKind.AGENT, bytes(key.verify_key), domain, 2, devices=(device,))

    def service(name: str, signer: SigningKey, network: MemoryNetwork) -> MessagingService:
        local = LocalEntity(record, signer, int.from_bytes(os.urandom(4), "big"))
        return MessagingService(
            tmp_path / name,
            Registry(WITH),
            network,
            [local],
            lambda: time.time_ns() // 1_000_000,
            lambda _: True,
            consent=TakesAll(),
        )

    desk_network, phone_network = hub.join(), hub.join()
    async with service("desk", key, desk_network).running() as desk:
        room = (await desk.bus(me).room.create(name="r"))["room_id"]
        await desk.bus(me).drafts.save(room_id=room, body="begun at the desk")
        async with service("phone", phone, phone_network).running() as pocket:
            await pocket.find_room(room)
            with anyio.fail_after(SECONDS):
                while (await pocket.bus(me).drafts.load(room_id=room))["body"] != "begun at the desk":
                    await pocket.asking.room(room)
        line, name = hub.join(), doc_id("draft", room_id=room, entity_id=me)
        mallory = Peer("mallory", 5, clock=Clock(time.time_ns() // 1_000_000))
        await desk.bus(me).room.invite(room_id=room, entity=mallory.id)
        for payload in (b"", question(f"{name}/state", mallory, b"")):
            assert await anyio.to_thread.run_sync(line.query, f"{name}/state", payload, 5.0) == []
