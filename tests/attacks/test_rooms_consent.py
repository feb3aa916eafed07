"""Rooms that are forced on somebody: what waits is little, named to nobody twice, and delays nothing else."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

import anyio
import pytest

from sublet.messaging.membership import consent, joining
from sublet.messaging.membership.consent import MAX_OF_DAEMON, MAX_OF_INVITER, AskAlways, Consent
from sublet.messaging.membership.invitations import read_offer
from sublet.messaging.membership.offer_limits import MAX_LEFT_OUT_OF_DAEMON, OfferLimits
from sublet.messaging.ports.invitation_store import Answer
from sublet.messaging.syncing.answers import inbox, offer
from sublet.protocol.ezagent.bundle import Bundle, RecordKind, decode_bundle, encode_bundle
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.keys import Channel, channel_key, doc_id
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub
from support.rooms import Peer, local_entity, peers

pytestmark = pytest.mark.anyio
ASKS = AskAlways()
ROOMS = 3 * MAX_OF_INVITER


def inbox_of(entity: EntityId) -> str:
    return channel_key(doc_id("inbox", entity_id=entity), Channel.UPDATES)


def invited(by: Peer, whom: EntityId, name: str = "r") -> tuple[str, bytes]:
    """Return a room that somebody brings somebody into, and the invitation."""
    room = by.do("room.create", name=name, invite=[whom])["room_id"]
    raw = offer(by.engine, whom, [room])
    assert raw is not None
    return room, raw


async def waits(one: Member) -> list[str]:
    return [each.room_id for each in await one.service.invited.all() if each.answer is Answer.PENDING]


async def send(one: Member, raw: bytes) -> None:
    line = one.network._hub.join()
    await anyio.to_thread.run_sync(line.query, inbox_of(one.id), raw, 5.0)


async def test_520_rooms_cost_a_bounded_little_and_delay_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer makes rooms with ours as a member: none is here, few wait, and after a restart nothing is read again."""
    read: list[str] = []

    def counted(make_trial: object, room_id: str, *more: object) -> object:
        read.append(room_id)
        return read_offer(make_trial, room_id, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(joining, "read_offer", counted)
    hub, mallory = MemoryHub(), Peer("mallory", 9)
    async with member("alice", 1, hub, tmp_path) as alice, member("eve", 2, hub, tmp_path) as eve:
        async with member("bob", 3, hub, tmp_path, consent=ASKS) as bob:
            await alice.bus.room.create(name="honest", invite=[bob.id])
            with anyio.fail_after(SECONDS):
                while not (honest := await waits(bob)):
                    await anyio.sleep(0.01)
            assert await bob.service.invited.accept(honest[0])
            for _ in range(ROOMS):
                await send(bob, invited(mallory, bob.id)[1])
            create = partial(eve.bus.room.create, invite=[bob.id])
            for number in range(ROOMS):
                await create(name=f"forced {number}")
            await bob.service._joining.ask(bob.id)
            assert len(await waits(bob)) == 2 * MAX_OF_INVITER, "as many as one may have waiting, of each"
            assert len(read) <= 1 + 2 * (MAX_OF_INVITER + 1), "a room that finds no room is not read"
            assert [room["name"] for room in await bob.bus.room.list()] == ["honest"]
            bob_id = bob.id
        read.clear()
        await alice.bus.message.send(room_id=honest[0], body="hello")
        async with member("bob", 4, hub, tmp_path, consent=ASKS) as bob:
            await bob.until(honest[0], lambda bodies: bodies == ["hello"])
            asked = {key for key, _ in bob.network._served.values()} | {key for key, _ in bob.network._heard.values()}
            assert {key.split("/")[1] for key in asked if key.split("/")[1].count("-") == 4} == {honest[0]}
            assert len(await waits(bob)) == 2 * MAX_OF_INVITER
            assert not set(read) & set(await waits(bob)), "what waits is not told of again"
        assert bob_id == bob.id


async def test_a_full_share_holds_up_nobody_else_and_is_given_back(tmp_path: Path) -> None:
    hub = MemoryHub()
    mallory, carol = Peer("mallory", 9), Peer("carol", 10)
    async with member("bob", 3, hub, tmp_path, consent=ASKS) as bob:
        for _ in range(MAX_OF_INVITER + 5):
            await send(bob, invited(mallory, bob.id)[1])
        assert len(await waits(bob)) == MAX_OF_INVITER
        room, raw = invited(carol, bob.id)
        await send(bob, raw)
        assert room in await waits(bob)
        await bob.service.invited.decline(next(iter(set(await waits(bob)) - {room})))
        room, raw = invited(mallory, bob.id)
        await send(bob, raw)
        assert room in await waits(bob)


async def test_long_configs_and_names_of_many_members_are_kept_short(tmp_path: Path) -> None:
    hub, mallory = MemoryHub(), Peer("mallory", 9)
    async with member("bob", 3, hub, tmp_path, consent=ASKS) as bob:
        for number in range(4):
            crowd = [f"@{'m' * 40}{one}:node-{'x' * 40}" for one in range(400)]
            room = mallory.do("room.create", name="n" * 256, invite=[bob.id, *crowd])["room_id"]
            for one in range(50):
                mallory.do("room.update_config", room_id=room, changes={"name": f"{'n' * 200}{one}"})
            raw = offer(mallory.engine, bob.id, [room])
            assert raw is not None
            await send(bob, raw)
            kept = await bob.service.on_engine(lambda engine: engine.store.invitations.kept())
            assert len(kept) == number + 1
            assert sum(one.size for one in kept) <= consent.MAX_BYTES_OF_DAEMON
        for invitation in await bob.service.invited.all():
            assert len(invitation.members) == consent.MAX_MEMBERS_SHOWN
            assert invitation.member_count == 402
            assert len(invitation.kept) <= consent.MAX_CONFIG_BYTES_KEPT


async def test_what_was_left_out_is_not_asked_for_until_there_is_room(tmp_path: Path) -> None:
    limits = OfferLimits()
    for number in range(MAX_LEFT_OUT_OF_DAEMON + 10):
        limits.leave_out(f"room-{number}", "mallory")
    limits.leave_out("room", "carol")
    assert len(limits.left_out()) == MAX_LEFT_OUT_OF_DAEMON + 1
    limits.has_room("mallory")
    assert limits.left_out() == {"room"}


async def test_an_old_config_takes_no_invitation_back(tmp_path: Path) -> None:
    """A member passes on a room as it was before ours were invited: what waits goes on to wait."""
    hub, carol = MemoryHub(), Peer("carol", 10)
    async with member("bob", 3, hub, tmp_path, consent=ASKS) as bob:
        room = carol.do("room.create", name="r")["room_id"]
        row = carol.store.find_document(doc_id("config", room_id=room))
        assert row is not None
        before = carol.store.log_after(row.number, {}, 1 << 20)[0]
        carol.do("room.invite", room_id=room, entity=bob.id)
        raw = offer(carol.engine, bob.id, [room])
        assert raw is not None
        await send(bob, raw)
        assert await waits(bob) == [room]
        record = (RecordKind.IDENTITY, carol.entity.record.encode())
        await send(bob, encode_bundle([record, *((RecordKind.ENVELOPE, one) for one in before)]))
        assert await waits(bob) == [room]


def test_who_was_taken_out_before_coming_in_learns_no_more_than_that() -> None:
    carol, dave, bob = peers("carol", "dave", "bob")
    room = carol.do("room.create", name="before", invite=[bob.id])["room_id"]
    carol.do("room.kick", room_id=room, entity=bob.id)
    carol.do("room.update_config", room_id=room, changes={"name": "secret"})
    carol.do("room.invite", room_id=room, entity=dave.id)
    told = inbox(carol.engine, bob.id, [room])
    assert told is not None
    read = read_offer(lambda: Peer("bob", 1_001).engine, room, Bundle(decode_bundle(told).records), {carol.id})
    assert (read.name, read.taken_out, dave.id in read.members) == ("before", True, False)
    assert inbox(carol.engine, dave.id, [room]) is None, "a member knows"
    stranger = local_entity("stranger", 3).record.entity_id
    assert inbox(carol.engine, stranger, [room]) is None, "nobody else learns that there is such a room"
    carol.do("room.kick", room_id=room, entity=stranger, ban=True)
    assert inbox(carol.engine, stranger, [room]) is None, "nor who was never asked in, and is kept out"


def test_who_has_been_in_a_room_is_not_told_of_it_after_being_removed() -> None:
    carol, bob = peers("carol", "bob")
    room = carol.do("room.create", name="r", invite=[bob.id])["room_id"]
    bob.catch_up(carol, room)
    bob.do("message.send", room_id=room, body="I am here")
    carol.hear(bob.published())
    carol.do("room.kick", room_id=room, entity=bob.id)
    carol.do("room.update_config", room_id=room, changes={"name": "secret"})
    assert inbox(carol.engine, bob.id, [room]) is None


async def test_a_forged_no_declines_for_nobody(tmp_path: Path) -> None:
    """A no counts by its signature: another member can't say it for who is invited."""
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        bob, eve = Peer("bob", 5), Peer("eve", 6)
        room = (await alice.bus.room.create(name="r", invite=[bob.id, eve.id]))["room_id"]
        raw = await alice.service.on_engine(lambda engine: offer(engine, bob.id, [room]))
        assert raw is not None
        eve.engine.here.want(room)
        eve.engine.intake.take_bundle(None, decode_bundle(raw))
        eve.published()
        eve.do("room.leave", room_id=room, reason="the invitation was declined")
        (left,) = [item for item in eve.published() if item.key.endswith("config/updates")]
        forged = left.payload.replace(eve.id.encode(), bob.id.encode().ljust(len(eve.id.encode())))
        his, hers = [(RecordKind.IDENTITY, one.entity.record.encode()) for one in (bob, eve)]
        await send(alice, encode_bundle([his, (RecordKind.ENVELOPE, forged)]))
        found = await alice.bus.room.get(room_id=room)
        assert found["invited"] == {bob.id: "pending", eve.id: "pending"}
        await send(alice, encode_bundle([hers, (RecordKind.ENVELOPE, left.payload)]))
        with anyio.fail_after(SECONDS):
            while (await alice.bus.room.get(room_id=room))["invited"] != {bob.id: "pending", eve.id: "declined"}:
                await anyio.sleep(0.01)


class Trusts:
    """Takes up what comes from some daemons, and refuses what comes from others."""

    def __init__(self, *homes: str, refuses: Collection[str] = ()) -> None:
        self._homes = homes
        self._refuses = refuses

    def foresee(self, home: str) -> Consent:
        if home in self._refuses:
            return Consent.REFUSE
        return Consent.ACCEPT if home in self._homes else Consent.ASK

    async def decide(self, home: str, whom: Collection[EntityId]) -> Consent:
        return self.foresee(home)


async def test_trust_goes_by_home_and_no_other_inviter_gets_it(tmp_path: Path) -> None:
    hub = MemoryHub()
    carol, eve, mallory = Peer("carol", 10), Peer("eve", 6), Peer("mallory", 9)
    trusts = Trusts(carol.entity.record.home, refuses=[mallory.entity.record.home])
    async with member("bob", 3, hub, tmp_path, consent=trusts) as bob:
        trusted, raw = invited(carol, bob.id)
        await send(bob, raw)
        assert [room["room_id"] for room in await bob.bus.room.list()] == [trusted]
        asked, raw = invited(eve, bob.id)
        # Whoever asks brings along the record and a false signature of the one who is trusted.
        more = [(RecordKind.IDENTITY, carol.entity.record.encode())]
        await send(bob, encode_bundle([*decode_bundle(raw).records, *more]))
        assert await waits(bob) == [asked]
        await send(bob, invited(mallory, bob.id)[1])
        assert await waits(bob) == [asked], "of what is refused nothing is kept"
        assert len(await bob.bus.room.list()) == 1


async def test_a_room_that_was_agreed_to_is_that_of_who_opens_it(tmp_path: Path) -> None:
    """START names a room: another inviter, or a room that the lender's daemon has not opened, waits like any other."""
    hub = MemoryHub()
    lender, accomplice = Peer("lender", 10), Peer("accomplice", 6)
    home = lender.entity.record.home
    async with member("bob", 3, hub, tmp_path, consent=ASKS) as bob:
        agreed, raw = invited(lender, bob.id)
        bob.service.invited.expect(agreed, lender.id, home)
        with anyio.fail_after(SECONDS):
            while await bob.service.on_engine(lambda engine: engine.store.invitations.get(agreed)) is None:
                await anyio.sleep(0.01)
        assert await bob.service.invited.all() == [], "what is expected is no invitation"
        await send(bob, raw)
        assert [room["room_id"] for room in await bob.bus.room.list()] == [agreed]
        other, raw = invited(accomplice, bob.id)
        bob.service.invited.expect(other, lender.id, home)
        await send(bob, raw)
        assert await waits(bob) == [other]


async def test_what_waited_before_it_was_agreed_to_is_taken_up(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 3, hub, tmp_path, consent=ASKS) as bob:
        room = (await alice.bus.room.create(name="r", invite=[bob.id]))["room_id"]
        with anyio.fail_after(SECONDS):
            while await waits(bob) != [room]:
                await anyio.sleep(0.01)
            bob.service.invited.expect(room, alice.id, local_entity("alice", 1).record.home)
            while not await bob.bus.room.list():
                await anyio.sleep(0.01)


async def test_a_full_share_keeps_no_room_out_that_was_agreed_to(tmp_path: Path) -> None:
    hub, lender = MemoryHub(), Peer("lender", 10)
    async with member("bob", 3, hub, tmp_path, consent=ASKS) as bob:
        for _ in range(MAX_OF_DAEMON):
            await send(bob, invited(lender, bob.id)[1])
        agreed, raw = invited(lender, bob.id)
        bob.service.invited.expect(agreed, lender.id, lender.entity.record.home)
        await anyio.sleep(0)
        with anyio.fail_after(SECONDS):
            while await bob.service.on_engine(lambda engine: engine.store.invitations.get(agreed)) is None:
                await anyio.sleep(0.01)
        await send(bob, raw)
        assert [room["room_id"] for room in await bob.bus.room.list()] == [agreed]


async def test_members_who_were_there_before_are_not_pending(tmp_path: Path) -> None:
    """Whoever has written, or acknowledged anything, has shown to be there: so rooms of before stay as they are."""
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 3, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        with anyio.fail_after(SECONDS):
            while (await alice.bus.room.get(room_id=room))["invited"]:
                await anyio.sleep(0.01)
