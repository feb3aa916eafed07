"""Catching up after a link has changed, where the first questions come before what the other side serves is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import anyio
import pytest

from sublet.messaging.engine.engine import Engine
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.membership import catching_up
from sublet.messaging.ports.network import Heard
from sublet.messaging.reconciling.roots import Roots
from sublet.protocol.ezagent.bundle import RecordKind, decode_bundle, encode_bundle
from sublet.protocol.ezagent.envelope import seal, unpack
from sublet.protocol.ezagent.keys import doc_id
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio


class Deaf:
    """Lets a member's questions find nobody, for as long as it is on."""

    def __init__(self, one: Member) -> None:
        self.asked: list[str] = []
        self.on = True
        self._ask = one.network.query
        one.network.query = self.query  # type: ignore[method-assign]

    def query(self, key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
        answers = [] if self.on else self._ask(key, payload, timeout_seconds)
        self.asked.append(key)
        return answers

    def has_asked(self) -> bool:
        """Tell whether a room's newest messages were asked for, which comes last."""
        return sum("/index/" in key for key in self.asked) >= 2


class Proven:
    """Gives a member links that prove whose they are, as those of daemons do, and notes whom it asks for what."""

    def __init__(self, one: Member, *others: Member) -> None:
        self.peers = {daemon_of(other): 1 for other in others}
        self._networks = {daemon_of(other): other.network for other in others}
        self.asked: list[tuple[str, str]] = []
        self.answers_roots_alone = ""
        """Of whom nothing but its root is heard."""
        self._query = one.network.query_of
        one.network.linked = lambda: list(self.peers)  # type: ignore[method-assign]
        one.service._catching_up._read_met = lambda: dict(self.peers)
        one.network.ask = self.ask  # type: ignore[method-assign]

    def ask(self, peer: str, key: str, payload: bytes, timeout_seconds: float, heard: Heard) -> Callable[[], None]:
        self.asked.append((peer, key))

        def wait() -> None:
            of = [self._networks[peer]] if peer in self._networks else None  # as before, where that was looked up then
            if peer != self.answers_roots_alone or key.endswith("/root"):
                for answer in self._query(key, payload, timeout_seconds, of):
                    heard(answer)
            heard(None)

        Thread(target=wait, daemon=True).start()
        return lambda: None

    def of(self, end: str) -> set[str]:
        """Return who was asked for what ends like this."""
        return {peer for peer, key in self.asked if key.endswith(end)}


def daemon_of(one: Member) -> str:
    """Return the node id of a member's daemon."""
    return one.service.home(one.id)


async def quiet(one: Member) -> None:
    """Wait until a member asks for nothing any more."""
    sync, idle = one.service._sync, 0
    with anyio.fail_after(SECONDS):
        while idle < 20:
            idle = 0 if sync._wanted or sync._locks else idle + 1
            await anyio.sleep(0.01)


async def until(check: Callable[[], bool]) -> None:
    with anyio.fail_after(SECONDS):
        while not check():
            await anyio.sleep(0.01)


async def test_who_could_not_be_asked_yet_is_asked_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "PERIOD_SECONDS", 10 * SECONDS)  # not by the look that comes from time to time
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        hub.loss = 1.0
        await alice.bus.message.send(room_id=room, body="while you were away")
        both = [Deaf(alice), Deaf(bob)]
        hub.heal()
        await until(lambda: all(one.has_asked() for one in both))
        for one in both:
            one.on = False
        with anyio.fail_after(SECONDS):
            while await bob.bodies(room) != ["while you were away"]:
                await anyio.sleep(0.01)


async def test_whoever_comes_is_asked_and_nobody_where_somebody_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "PERIOD_SECONDS", 10 * SECONDS)
    monkeypatch.setattr(catching_up, "ONCE_MORE_SECONDS", 0.0)
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path, more=EXTENSIONS) as alice,
        member("bob", 2, hub, tmp_path, more=EXTENSIONS) as bob,
        member("carol", 3, hub, tmp_path, more=EXTENSIONS) as carol,
    ):
        await room_of(alice, bob, carol)
        proven, profile = Proven(alice, bob, carol), "/ext/profile/state"
        changed = alice.service._catching_up.link_changed
        await changed()
        await until(lambda: proven.of("/inbox") == proven.of(profile) == proven.peers.keys())
        await quiet(alice)
        proven.asked.clear()
        proven.peers[daemon_of(bob)] += 1
        await changed()
        await until(lambda: len(proven.of(profile)) > 0)
        assert proven.of("/inbox") == proven.of(profile) == {daemon_of(bob)}
        await quiet(alice)
        proven.asked.clear()
        del proven.peers[daemon_of(bob)]
        await changed()
        assert not proven.of("/inbox")
        proven.peers[daemon_of(bob)] = 1
        async with anyio.create_task_group() as group:  # as the links of whoever starts come all at once
            for _ in range(5):
                group.start_soon(changed)
        assert [peer for peer, key in proven.asked if key.endswith("/inbox")] == [daemon_of(bob)] * 2


async def test_where_all_hold_the_same_each_is_asked_for_its_root_and_nothing_else(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path) as alice,
        member("bob", 2, hub, tmp_path) as bob,
        member("carol", 3, hub, tmp_path) as carol,
    ):
        room = await room_of(alice, bob, carol)
        for one in (alice, bob, carol):
            await one.bus.message.send(room_id=room, body="here")
        proven = Proven(alice, bob, carol)

        def asked_about_room() -> set[str]:
            return {key.split("/", 2)[2] for _, key in proven.asked if room in key and "/ephemeral/" not in key}

        with anyio.fail_after(SECONDS):
            while asked_about_room() != {"root"}:
                proven.asked.clear()
                await alice.service.asking.room(room)
        hub.loss = 1.0
        await bob.bus.message.send(room_id=room, body="lost")
        proven.asked.clear()
        await alice.service.asking.room(room)
        assert "config/state" in asked_about_room()
        assert await alice.bodies(room) == ["here"] * 3 + ["lost"]


async def test_who_has_left_states_nothing_and_is_asked_for_the_last_that_was_written(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path) as alice,
        member("bob", 2, hub, tmp_path) as bob,
        member("carol", 3, hub, tmp_path) as carol,
    ):
        room = await room_of(alice, bob, carol)
        proven = Proven(alice, bob, carol)
        await carol.bus.room.leave(room_id=room)
        # And one who is alike, so that nobody waits for those who never answer.
        both = {daemon_of(bob), daemon_of(carol)}
        with anyio.fail_after(SECONDS):
            while proven.of(f"{room}/config/state") != both:
                proven.asked.clear()
                await alice.service.asking.room(room)
        assert {peer for peer, key in proven.asked if f"{room}/index/" in key} == both


async def test_of_whom_something_could_not_be_taken_is_asked_again_for_what_may_be_taken_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        await bob.bus.message.send(room_id=room, body="here")
        proven = Proven(alice, bob)
        with anyio.fail_after(SECONDS):
            while await alice.bodies(room) != ["here"]:
                await alice.service.asking.room(room)
        await quiet(alice)
        monkeypatch.setattr(Roots, "differs", lambda *_: False)  # as once they were compared, and neither has changed
        hub.loss = 1.0
        await bob.bus.message.send(room_id=room, body="refused before")
        proven.asked.clear()
        await alice.service.asking.room(room)
        assert proven.of(f"{room}/config/state") == {daemon_of(bob)}
        assert await alice.bodies(room) == ["here", "refused before"]


async def test_who_states_our_root_and_holds_more_keeps_that_back_until_our_root_changes_or_a_gap_shows_it(
    tmp_path: Path,
) -> None:
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path) as alice,
        member("bob", 2, hub, tmp_path) as bob,
        member("carol", 3, hub, tmp_path) as carol,
    ):
        room = await room_of(alice, bob, carol)
        proven = Proven(alice, bob, carol)
        lies = await says_to_hold_what_the_asker_does(bob)
        await quiet(alice)
        hub.loss = 1.0
        proven.answers_roots_alone = daemon_of(bob)  # and does not acknowledge what it keeps back
        await bob.bus.message.send(room_id=room, body="kept back")
        proven.asked.clear()
        await alice.service.asking.room(room)
        assert lies, "it was asked for its root"
        assert await alice.bodies(room) == []
        assert daemon_of(bob) not in proven.of(f"{room}/config/state"), "it was taken at its word"
        proven.answers_roots_alone = ""
        await carol.bus.message.send(room_id=room, body="of carol")
        await alice.service.asking.room(room)
        assert set(await alice.bodies(room)) == {"kept back", "of carol"}, "the root that it has signed is ours no more"
        await bob.bus.message.send(room_id=room, body="kept back, too")
        hub.loss = 0.0
        await bob.bus.message.send(room_id=room, body="said")
        await until_bodies(alice, room, {"kept back", "of carol", "kept back, too", "said"})


async def test_a_root_that_was_settled_and_is_not_ours_is_not_alike(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        proven = Proven(alice, bob)
        hub.loss, bob.network.linked = 1.0, list  # type: ignore[method-assign]
        await alice.bus.message.send(room_id=room, body="that bob lacks")
        for _ in range(2):  # the first time it is compared with, the second time that was settled
            proven.asked.clear()
            await alice.service.asking.room(room)
            assert proven.of(f"{room}/config/state") == {daemon_of(bob)}
        assert not proven.of(f"/tree/{bob.id}"), "nothing is followed that was settled"


async def test_a_room_that_is_known_and_has_no_shard_yet_asks_for_roots_first(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        await quiet(alice)
        proven = Proven(alice, bob)
        with anyio.fail_after(SECONDS):
            while [key for _, key in proven.asked] != [f"ezagent/{room}/root"]:
                proven.asked.clear()
                await alice.service.asking.room(room)


async def says_to_hold_what_the_asker_does(one: Member) -> list[bytes]:
    """Let a member answer each question for its root with the one that the asker has stated; return these answers.

    It asks nobody, since a question would tell what it holds.
    """
    one.network.linked = list  # type: ignore[method-assign]
    told: list[bytes] = []

    def lie(engine: Engine) -> None:
        honest = engine.roots.statement

        def statement(room_id: str, asked_with: bytes = b"") -> bytes | None:
            if not asked_with:
                return honest(room_id, asked_with)
            asked = unpack(decode_bundle(asked_with).of(RecordKind.ROOT)[0])
            name, local = doc_id("root", room_id=room_id), engine.keyring.local[one.id]
            envelope = seal(engine.keyring.key(one.id), one.id, name, engine.now_ms(), asked.payload)
            record = local.record.encode()
            told.append(encode_bundle([(RecordKind.IDENTITY, record), (RecordKind.ROOT, envelope.raw)]))
            return told[-1]

        engine.roots.statement = statement  # type: ignore[method-assign]

    await one.service.on_engine(lie)
    return told


async def until_bodies(one: Member, room: str, wanted: set[str]) -> None:
    with anyio.fail_after(SECONDS):
        while set(await one.bodies(room)) != wanted:
            await anyio.sleep(0.01)
