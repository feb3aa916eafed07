"""Identity operations over a network: who shows that it is there, who does not, and what runs here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from nacl.signing import SigningKey

from sublet.messaging.events.events import KEPT_EVENTS
from sublet.messaging.extensions.reactions import REACTIONS
from sublet.messaging.ports.network import PeerQuery
from sublet.messaging.syncing.answers import challenged
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.challenge import MAX_AGE_MS, Challenge, encode_challenge, encode_response, parse_challenge
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.sealing.device_statements import add, prove_held, remove
from sublet.protocol.ezagent.sealing.wire import NO_ID
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub
from support.rooms import NOW_MS, local_entity, peers

pytestmark = pytest.mark.anyio


async def refusal(one: Member, entity: str) -> LocalCode | str:
    with pytest.raises(SubletError) as caught:
        await one.bus.identity.verify_peer(entity_id=entity)
    return caught.value.code


async def test_a_peer_shows_that_it_holds_its_key(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        with pytest.raises(SubletError, match="nobody here knows"):
            await alice.bus.identity.get_pubkey(entity_id=bob.id)
        shown = await alice.bus.identity.verify_peer(entity_id=bob.id)
        assert shown.pop("verified_at")
        # From now on it is known without asking anybody.
        hub.cut(alice.network, bob.network)
        assert await alice.bus.identity.get_pubkey(entity_id=bob.id) == shown == await bob.bus.identity.whoami()
        assert await refusal(alice, bob.id) == LocalCode.PEER_UNREACHABLE
        assert await refusal(alice, alice.id) == LocalCode.INVALID_ARGUMENT
        assert await refusal(alice, "bob") == LocalCode.INVALID_ARGUMENT


async def test_whoever_answers_in_anothers_place_is_found_out(tmp_path: Path) -> None:
    hub, eve, bob = MemoryHub(), local_entity("eve", 3), local_entity("bob", 2)
    network, lies = hub.join(), list[Callable[[Challenge], bytes]]()

    def answer(query: PeerQuery) -> None:
        challenge, _ = parse_challenge(query.payload)
        query.reply(lies[0](challenge))

    network.serve(doc_id("challenge", entity_id=bob.record.entity_id), answer)
    async with member("alice", 1, hub, tmp_path) as alice:
        for lie in (
            lambda challenge: b"nothing",
            lambda challenge: encode_response(challenge, bob.record, eve.key),
            lambda challenge: encode_response(challenge, eve.record, eve.key),
        ):
            lies[:] = [lie]
            assert await refusal(alice, bob.record.entity_id) == LocalCode.KEY_CHANGED
        with pytest.raises(SubletError, match="nobody here knows"):
            await alice.bus.identity.get_pubkey(entity_id=bob.record.entity_id)
        async with member("bob", 2, hub, tmp_path) as real:
            # Of several answers the true one counts.
            assert (await alice.bus.identity.verify_peer(entity_id=real.id))["entity_id"] == real.id


async def test_only_a_challenge_of_now_for_this_entity_is_answered() -> None:
    alice, bob = peers("alice", "bob")

    def challenge(time_ms: int, responder: str) -> bytes:
        asked = Challenge(alice.id, responder, bytes(32), time_ms)
        return encode_challenge(asked, alice.entity.record, alice.entity.key)

    assert challenged(bob.engine, bob.id, challenge(NOW_MS - MAX_AGE_MS, bob.id))
    assert challenged(bob.engine, alice.id, b"") is None
    for raw in (
        challenge(NOW_MS - MAX_AGE_MS - 1, bob.id),
        challenge(NOW_MS + MAX_AGE_MS + 1, bob.id),
        challenge(NOW_MS, alice.id),
    ):
        with pytest.raises(Refused):
            challenged(bob.engine, bob.id, raw)


async def test_another_entity_is_made_where_somebody_vouches_for_it(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path, make_entity=lambda name: local_entity(name, 7)) as alice,
        member("bob", 2, hub, tmp_path) as bob,
    ):
        made = await alice.bus.identity.init(name="carol")
        assert made["entity_id"] == local_entity("carol", 7).record.entity_id
        assert await alice.bus.identity.init(name="carol") == made
        assert (await alice.service.bus(made["entity_id"]).identity.whoami()) == made
        assert (await bob.bus.identity.verify_peer(entity_id=made["entity_id"]))["entity_id"] == made["entity_id"]
        with pytest.raises(SubletError, match="nobody here vouches"):
            await bob.bus.identity.init(name="carol")
        with pytest.raises(SubletError, match="no argument is called local"):
            await alice.bus.identity.init(local="carol")
        with pytest.raises(SubletError, match="names at a relay") as caught:
            await alice.bus.identity.register()
        assert caught.value.code == LocalCode.UNAVAILABLE
        assert "sublet register" in caught.value.hint


async def test_status_tells_what_runs_here(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path, more=(REACTIONS,)) as alice:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        status = await alice.bus.status()
        assert status == {
            "entity_id": alice.id,
            "level": 0,
            "entities": [alice.id],
            "extensions": {"reactions": {"version": "0.1.0", "origin": "standard"}},
            "rooms": [room],
            "cursor": await alice.service.cursor(),
            "updates": {},
        }


async def test_events_are_streamed_each_once(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        seen: list[str] = []
        stream = bob.bus.events.stream(since=await bob.service.cursor(), room_id=room)
        with anyio.fail_after(SECONDS):
            for number in range(5):
                await alice.bus.message.send(room_id=room, body=str(number))
                event = await anext(stream)
                assert event["kind"] == "message.new"
                seen.append(event["ref_id"])
            await stream.aclose()
        refs = (await alice.bus.timeline.list(room_id=room))["refs"]
        assert seen == [ref["ref_id"] for ref in refs]
        # From an older cursor the same ones come again, and others before.
        again: list[str] = []
        async for event in bob.bus.events.stream(since=0):
            if event["kind"] == "message.new":
                again.append(event["ref_id"])
            if len(again) == len(seen):
                break
        assert again == seen


async def test_a_stream_from_now_on_holds_nothing_from_before(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        await alice.bus.message.send(room_id=room, body="before")
        found: list[str] = []
        begun = anyio.Event()
        first = alice.service.cursor

        async def cursor() -> int:
            at = await first()
            begun.set()
            return at

        alice.service.cursor = cursor  # type: ignore[method-assign]  # to know when it has begun

        async def take() -> None:
            async for event in alice.bus.events.stream():
                found.append(event["ref_id"])
                return

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(take)
                await begun.wait()
                sent = await alice.bus.message.send(room_id=room, body="after")
        assert found == [sent["ref_id"]]


async def test_a_stream_tells_that_events_were_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublet.messaging.events.events.KEPT_EVENTS", 3)
    monkeypatch.setattr("sublet.messaging.backends.sqlite_store.PRUNE_EVERY", 1)
    assert KEPT_EVENTS > 3
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        start = await alice.service.cursor()
        for _ in range(6):
            await alice.bus.message.send(room_id=room, body="x")
        with pytest.raises(SubletError, match="not kept any more"):
            await anext(alice.bus.events.stream(since=start))


async def test_a_device_that_was_removed_shows_a_record_from_before_in_vain(tmp_path: Path) -> None:
    hub, bob, laptop = MemoryHub(), local_entity("bob", 2), SigningKey(b"\7" * 32)
    entity, key = bob.record.entity_id, bytes(laptop.verify_key)
    seal_key = bytes(laptop.verify_key.to_curve25519_public_key())
    said = add(bob.key, entity, NO_ID, key, "laptop", seal_key, prove_held(laptop, entity, seal_key))
    before = bob.record.with_statements((said,))
    after = before.with_statements((remove(bob.key, entity, said.id, key, NO_ID),))
    network = hub.join()
    network.serve(
        doc_id("challenge", entity_id=entity),
        lambda query: query.reply(encode_response(parse_challenge(query.payload)[0], before, laptop)),
    )
    async with member("alice", 1, hub, tmp_path) as alice:
        assert (await alice.bus.identity.verify_peer(entity_id=entity))["entity_id"] == entity
        await alice.service.on_engine(lambda engine: engine.intake.learn(after.encode()))
        assert await refusal(alice, entity) == LocalCode.KEY_CHANGED
