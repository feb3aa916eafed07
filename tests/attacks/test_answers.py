"""Whoever answers what others ask on the bus: without being asked, with junk, with nothing, or never."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest

from attacks.kit.bus_members import SECONDS, BusMember, Villain, on_bus, room_of
from sublet.messaging.ports.network import PeerQuery
from sublet.messaging.syncing import asking, shares
from sublet.messaging.syncing.shares import Failure
from sublet.protocol.ezagent.keys import doc_id

pytestmark = pytest.mark.anyio

NEVER = 3_600.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody stop waiting for an answer, so that whoever waits for a silent one never ends."""
    for name in ("ANSWER_SECONDS", "LAST_SECONDS", "ANYBODY_SECONDS"):
        monkeypatch.setattr(asking, name, NEVER)


def keys_of(room: str) -> list[str]:
    """Return keys of a room that wildcards match, as a villain would declare them."""
    return [f"ezagent/{room}/{name}" for name in ("config/state", "root", "index/*/state", "delivery", "ext/*/state")]


@pytest.mark.parametrize("kind", ["junk", "silent"])
async def test_who_is_no_member_is_asked_nothing_about_a_room(tmp_path: Path, kind: str, patient: None) -> None:
    alice, bob, eve = BusMember("alice", tmp_path, 1), BusMember("bob", tmp_path, 2), Villain("eve", tmp_path, 3)
    async with on_bus(alice, bob, eve):
        room = await room_of(alice, bob)
        (eve.talks_junk if kind == "junk" else eve.is_silent)(*keys_of(room))
        await alice.bus.message.send(room_id=room, body="hello")
        await bob.shows(room, ["hello"])
        with anyio.fail_after(SECONDS):
            for one in (alice, bob):
                await one.service.asking.room(room)
        assert [key for key in eve.asked if room in key] == []
        assert eve.node not in alice.service.asked_last()


async def test_what_is_published_of_a_room_goes_to_its_members_alone(tmp_path: Path) -> None:
    alice, bob, eve = BusMember("alice", tmp_path, 1), BusMember("bob", tmp_path, 2), Villain("eve", tmp_path, 3)
    eve.listens()
    async with on_bus(alice, bob, eve):
        room = await room_of(alice, bob)
        await alice.bus.message.send(room_id=room, body="hello")
        await bob.shows(room, ["hello"])
        await bob.bus.message.send(room_id=room, body="good day")
        await alice.bus.room.update_config(room_id=room, changes={"name": "another name"})
        await bob.shows(room, ["hello", "good day"])
        await alice.shows(room, ["hello", "good day"])
        open_room = (await alice.bus.room.create(name="open", policy="open"))["room_id"]
        with anyio.fail_after(SECONDS):
            while not any(open_room in sample.key for sample in eve.heard):  # the link is there, and she listens
                await anyio.sleep(0.02)
        assert [sample.key for sample in eve.heard if room in sample.key] == []


async def test_who_looks_for_a_room_to_which_nobody_has_invited_it_gets_nothing_of_it(tmp_path: Path) -> None:
    alice, bob, carol = (BusMember(name, tmp_path, number) for number, name in enumerate(("alice", "bob", "carol")))
    async with on_bus(alice, bob, carol):
        room = await room_of(alice, bob)
        await carol.service.find_room(room)
        for name in ("first", "second"):
            await alice.bus.room.update_config(room_id=room, changes={"name": name})
        marker = (await alice.bus.room.create(name="for both", invite=[carol.id]))["room_id"]
        with anyio.fail_after(SECONDS):
            while marker not in [one["room_id"] for one in await carol.bus.room.list()]:
                await anyio.sleep(0.02)
        name = doc_id("config", room_id=room)
        assert await carol.service.on_engine(lambda engine: engine.store.find_document(name)) is None


async def test_who_was_removed_hears_of_that_and_of_nothing_later(tmp_path: Path) -> None:
    alice, bob = BusMember("alice", tmp_path, 1), BusMember("bob", tmp_path, 2)
    async with on_bus(alice, bob):
        room = await room_of(alice, bob)
        await alice.is_heard_by(bob, f"ezagent/{room}/config/updates")
        await alice.bus.room.kick(room_id=room, entity=bob.id)
        with anyio.fail_after(SECONDS):
            while await bob.bus.room.list():
                await anyio.sleep(0.02)
        await alice.bus.room.update_config(room_id=room, changes={"name": "without bob"})
        await alice.bus.message.send(room_id=room, body="without bob")
        marker = (await alice.bus.room.create(name="again", invite=[bob.id]))["room_id"]
        with anyio.fail_after(SECONDS):
            while marker not in [one["room_id"] for one in await bob.bus.room.list()]:
                await anyio.sleep(0.02)
        assert await bob.service.on_engine(lambda engine: engine.rooms.state(room).name) == "r"


async def test_nobody_waits_for_a_member_that_never_answers(tmp_path: Path, patient: None) -> None:
    alice, bob, eve = BusMember("alice", tmp_path, 1), BusMember("bob", tmp_path, 2), Villain("eve", tmp_path, 3)
    async with on_bus(alice, bob, eve):
        room = await room_of(alice, bob, eve)
        eve.is_silent(*keys_of(room))
        await alice.bus.message.send(room_id=room, body="hello")
        await bob.shows(room, ["hello"])
        with anyio.fail_after(SECONDS):
            while not eve.held:
                await bob.service.asking.room(room)
            for _ in range(3):
                await bob.service.asking.room(room)
        assert eve.held, "she answers still nothing"


async def test_a_member_that_never_answers_is_asked_last_and_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(asking, "LAST_SECONDS", 0.3)
    monkeypatch.setattr(shares, "FIRST_PAUSE_SECONDS", NEVER)
    monkeypatch.setattr(shares, "MAX_PAUSE_SECONDS", NEVER)
    alice, bob, eve = BusMember("alice", tmp_path, 1), BusMember("bob", tmp_path, 2), Villain("eve", tmp_path, 3)
    async with on_bus(alice, bob, eve):
        room = await room_of(alice, bob, eve)
        eve.is_silent(*keys_of(room))
        with anyio.fail_after(SECONDS):
            while bob.service.asked_last() != {eve.node: Failure.SILENT}:
                await bob.service.asking.room(room)
            before = eve.asked.total()
            for number in range(5):
                await alice.bus.message.send(room_id=room, body=f"{number}")
                await bob.service.asking.room(room)
            while alice.service.asked_last() != {eve.node: Failure.SILENT}:
                await alice.service.asking.room(room)
            after = eve.asked.total()
            for _ in range(5):
                await alice.service.asking.room(room)
                await bob.service.asking.room(room)
        assert await bob.bodies(room) == [f"{number}" for number in range(5)]
        assert after - before <= 4 * asking.MAX_AT_ONCE_OF_PEER, "her places for questions, and no more"
        assert eve.asked.total() == after


@pytest.mark.parametrize("lie", ["junk", "sealed for nobody", "huge"])
async def test_a_member_that_answers_with_junk_is_told_of_and_costs_nobody_anything(tmp_path: Path, lie: str) -> None:
    alice, bob, eve = BusMember("alice", tmp_path, 1), BusMember("bob", tmp_path, 2), Villain("eve", tmp_path, 3)
    said = {"junk": b"\xff" * 256, "sealed for nobody": b"\1\0" + bytes(500), "huge": bytes(4 << 20)}[lie]
    async with on_bus(alice, bob, eve):
        room = await room_of(alice, bob, eve)
        eve.answers(lambda query: query.reply(said), *keys_of(room))
        await alice.bus.message.send(room_id=room, body="hello")
        await bob.shows(room, ["hello"])
        with anyio.fail_after(SECONDS):
            while bob.service.asked_last() != {eve.node: Failure.JUNK}:
                await bob.service.asking.room(room)
            for number in range(3):
                await alice.bus.message.send(room_id=room, body=f"{number}")
        await bob.shows(room, ["hello", "0", "1", "2"])


async def test_who_answers_again_is_asked_like_the_others_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(shares, "MAX_PAUSE_SECONDS", 0.01)
    alice, bob, eve = BusMember("alice", tmp_path, 1), BusMember("bob", tmp_path, 2), Villain("eve", tmp_path, 3)
    state = {"answers": False}

    def answer(query: PeerQuery) -> None:
        if state["answers"]:
            query.drop()  # nothing that alice would lack
        else:
            query.reply(b"junk")

    async with on_bus(alice, bob, eve):
        room = await room_of(alice, bob, eve)
        eve.answers(answer, *keys_of(room))
        with anyio.fail_after(SECONDS):
            while eve.node not in alice.service.asked_last():
                await alice.service.asking.room(room)
            state["answers"] = True
            while eve.node in alice.service.asked_last():
                await alice.service.asking.room(room)


async def test_a_place_that_a_silent_member_fills_is_its_own(tmp_path: Path, patient: None) -> None:
    alice, bob, eve = BusMember("alice", tmp_path, 1), BusMember("bob", tmp_path, 2), Villain("eve", tmp_path, 3)
    async with on_bus(alice, bob, eve):
        room, other = await room_of(alice, bob, eve), await room_of(alice, bob)
        eve.is_silent(*keys_of(room))
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as group:
                for _ in range(3 * asking.MAX_AT_ONCE_OF_PEER):
                    group.start_soon(partial(bob.service.asking.room, room))
            await alice.bus.message.send(room_id=other, body="elsewhere")
            await bob.service.asking.room(other)
        # She serves each key twice, by itself and below a wildcard.
        assert len({one.payload for one in eve.held}) <= 2 * asking.MAX_AT_ONCE_OF_PEER, "of both who ask her"
        await bob.shows(other, ["elsewhere"])
