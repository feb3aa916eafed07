"""EXT-09: who is there and who is typing, what is told of it, and whom nobody believes."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.attending import said_again
from sublet.messaging.attending.said_again import SaidAgain
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.extensions.presence import PRESENCES, REFRESH_MS, TYPING_MS, _expire
from sublet.messaging.passing import kept_passing
from sublet.messaging.passing.ephemeral import MAX_AGE_MS, MAX_VALUE_BYTES, MIN_PAUSE_MS
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.envelope import seal, unpack
from sublet.protocol.ezagent.ids import SYSTEM_ENTITY
from sublet.protocol.ezagent.keys import doc_id
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub
from support.rooms import Peer, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, PRESENCES)


class Heard:
    """What a peer's engine mentions."""

    def __init__(self, peer: Peer) -> None:
        self.events: list[tuple[str, object]] = []
        peer.engine.events.listeners.append(
            lambda rows: self.events.extend(
                (row.kind, row.data["entity"]) for row in rows if row.kind.startswith(("presence", "typing"))
            )
        )


def two() -> tuple[Peer, Peer, str, Heard]:
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    bob.published()
    return alice, bob, room, Heard(bob)


def key(room: str, entity: str) -> str:
    return doc_id("ephemeral", room_id=room, ext_id="awareness", entity_id=entity)


def here(peer: Peer, room: str) -> dict[str, Any]:
    return {one["entity"]: one for one in peer.do("presence.list", room_id=room)}


def say(peer: Peer, room: str, **what: Any) -> Any:
    return peer.do("presence.set", room_id=room, **what)["said"]


def later(*peers: Peer, ms: int) -> None:
    for peer in peers:
        peer.clock.now_ms += ms


def test_what_somebody_says_in_passing_is_there_once_their_token_is() -> None:
    alice, bob, room, heard = two()
    assert say(alice, room, status="back at three", typing=True)
    bob.hear(alice.published())
    assert set(here(bob, room)) == {bob.id}, "a word without a token is of somebody who may be gone"
    bob.engine.ephemeral.token(room, alice.id, there=True)
    found = here(bob, room)[alice.id]
    assert (found["status"], found["typing"]) == ("back at three", True)
    assert heard.events == [("typing.start", alice.id), ("presence.joined", alice.id)]
    bob.engine.ephemeral.token(room, alice.id, there=False)
    assert set(here(bob, room)) == {bob.id}
    assert heard.events[2:] == [("presence.left", alice.id)]
    assert not [event for event in bob.engine.events.since(0) if event.kind.startswith(("presence", "typing"))]


def test_a_token_alone_proves_nothing() -> None:
    _, bob, room, heard = two()
    bob.engine.ephemeral.token(room, "@alice:elsewhere", there=True)
    assert set(here(bob, room)) == {bob.id}
    assert heard.events == []


def test_whoever_does_not_say_again_that_they_are_typing_has_stopped() -> None:
    alice, bob, room, heard = two()
    bob.engine.ephemeral.token(room, alice.id, there=True)
    say(alice, room, typing=True)
    bob.hear(alice.published())
    later(bob, ms=TYPING_MS)
    assert here(bob, room)[alice.id]["typing"] is False
    _expire(OperationContext(bob.engine.operating, SYSTEM_ENTITY))
    _expire(OperationContext(bob.engine.operating, SYSTEM_ENTITY))
    assert heard.events[-1] == ("typing.stop", alice.id)
    assert heard.events.count(("typing.stop", alice.id)) == 1


def test_the_same_is_not_said_again_at_once() -> None:
    alice, _, room, _ = two()
    assert say(alice, room, typing=True)
    assert not say(alice, room, typing=True)
    assert say(alice, room, typing=False)
    later(alice, ms=REFRESH_MS)
    assert say(alice, room, typing=False)
    assert say(alice, room, status="x")
    assert say(alice, room, status="")
    assert here(alice, room)[alice.id]["status"] is None


def forged(peer: Peer, room: str, *, at: int, entity: str | None = None, payload: bytes = b"{}") -> Arrival:
    return Arrival(seal(peer.entity.key, peer.id, key(room, entity or peer.id), at, payload).raw)


def test_what_is_forged_stale_replayed_or_of_another_shape_is_not_heard() -> None:
    alice, bob, room, heard = two()
    mallory = Peer("mallory", 2000, declarations=WITH)
    mallory.meet(alice, bob)
    bob.meet(mallory)
    bob.engine.ephemeral.token(room, alice.id, there=True)
    now = bob.clock.now_ms
    for arrival, reason in (
        (forged(mallory, room, at=now), "unknown_document"),
        (forged(mallory, room, at=now, entity=alice.id), "foreign_key"),
        (forged(alice, room, at=now - MAX_AGE_MS - 1), "stale"),
        (forged(alice, room, at=now + MAX_AGE_MS + 1), "stale"),
        (forged(alice, room, at=now, payload=b"[1]"), "malformed"),
        (forged(alice, room, at=now, payload=b"{" * 500), "malformed"),
        (forged(alice, room, at=now, payload=b"\xff"), "malformed"),
        (forged(alice, room, at=now, payload=b'"' + b"x" * MAX_VALUE_BYTES + b'"'), "oversized"),
        (Arrival(forged(alice, room, at=now).envelope[:-64] + bytes(64)), "bad_signature"),
    ):
        before = bob.refused().get(reason, 0)
        bob.engine.intake.take([arrival])
        assert bob.refused()[reason] == before + 1, arrival
    assert (set(here(bob, room)), heard.events) == ({bob.id}, [])
    said = forged(alice, room, at=now, payload=json.dumps({"typing": "yes", "custom_status": 7}).encode())
    bob.engine.intake.take([said, said])
    assert bob.refused()["stale"] == 3
    assert here(bob, room)[alice.id] == {
        "entity": alice.id,
        "typing": True,
        "status": None,
        "window": None,
        "last_active": None,
    }
    bob.engine.intake.take([forged(alice, room, at=now + 1)])
    assert bob.refused()["too_many"] == 1
    later(bob, ms=MIN_PAUSE_MS)
    bob.engine.intake.take([forged(alice, room, at=now + 2)])
    assert heard.events[-1] == ("typing.stop", alice.id)


def test_only_members_ask_and_say_and_what_is_too_long_is_refused() -> None:
    alice, bob, room, _ = two()
    with pytest.raises(SubletError, match="at most"):
        say(alice, room, status="x" * 500)
    alice.do("room.kick", room_id=room, entity=bob.id)
    bob.hear(alice.published())
    for operation in ("presence.list", "presence.set"):
        with pytest.raises(SubletError, match="no such room"):
            bob.do(operation, room_id=room)
    assert set(here(alice, room)) == {alice.id}


async def until(member: Member, room: str, wanted: set[str]) -> None:
    with anyio.fail_after(SECONDS):
        while {one["entity"] for one in await member.bus.presence.list(room_id=room)} != wanted:
            await anyio.sleep(0.02)


@pytest.mark.anyio
async def test_members_come_and_go(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with AsyncExitStack() as stack:
        alice = await stack.enter_async_context(member("alice", 1, hub, tmp_path, more=(PRESENCES,)))
        async with member("bob", 2, hub, tmp_path, more=(PRESENCES,)) as bob:
            room = await room_of(alice, bob)
            await until(alice, room, {alice.id, bob.id})
            await until(bob, room, {alice.id, bob.id})
            async with anyio.create_task_group() as group:
                seen: list[dict[str, Any]] = []

                def starts() -> list[str]:
                    return [event["entity"] for event in seen if event["kind"] == "typing.start"]

                async def watch() -> None:
                    since = (await alice.service.watch(alice.id, 0, 0, room))["cursor"]
                    while not starts():
                        page = await alice.service.watch(alice.id, since, 5.0, room)
                        since = page["cursor"]
                        seen.extend(page["events"])

                group.start_soon(watch)
                with anyio.fail_after(SECONDS):
                    while not starts():
                        await bob.bus.presence.set(room_id=room, typing=True)
                        await anyio.sleep(0.05)
                        await bob.bus.presence.set(room_id=room, typing=False)
                        await anyio.sleep(0.05)
            assert set(starts()) == {bob.id}
        await until(alice, room, {alice.id})


@pytest.mark.anyio
async def test_who_is_cut_off_is_gone_and_comes_back(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path, more=(PRESENCES,)) as alice,
        member("bob", 2, hub, tmp_path, more=(PRESENCES,)) as bob,
    ):
        room = await room_of(alice, bob)
        await until(alice, room, {alice.id, bob.id})
        hub.cut(alice.network, bob.network)
        await until(alice, room, {alice.id})
        hub.heal()
        await until(alice, room, {alice.id, bob.id})
        await alice.bus.room.kick(room_id=room, entity=bob.id)
        await until(alice, room, {alice.id})


def test_the_many_of_one_daemon_keep_nobody_else_from_being_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_passing, "MAX_PRESENT", 12)
    monkeypatch.setattr(kept_passing, "MAX_PRESENT_OF_DAEMON", 4)
    alice, bob, room, _ = two()
    for number in range(20):
        bob.engine.ephemeral.token(room, f"@e{number}:node-of-eve", there=True)
    assert sum(bob.engine.ephemeral.has_token(room, f"@e{number}:node-of-eve") for number in range(20)) == 4
    say(alice, room, status="here")
    bob.hear(alice.published())
    bob.engine.ephemeral.token(room, alice.id, there=True)
    assert set(here(bob, room)) == {alice.id, bob.id}
    monkeypatch.setattr(kept_passing, "MAX_PRESENT", 1)
    assert say(bob, room, status="of our own there is always room")


class Late:
    """Somebody who hears a room, and announces that Bob is there, but asks nothing."""

    def __init__(self, hub: MemoryHub, room: str, of: str, name: str) -> None:
        self.heard: list[str] = []
        self._network = hub.join()
        self._token = doc_id("ephemeral", room_id=room, ext_id="presence", entity_id=name)
        self._network.subscribe(key(room, of), self._hear)

    def _hear(self, sample: Any) -> None:
        self.heard.append(json.loads(unpack(sample.payload).payload)["custom_status"])

    def comes(self) -> Any:
        return self._network.announce(self._token)


@pytest.mark.anyio
async def test_what_was_said_in_passing_is_said_again_for_whoever_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(said_again, "PAUSE_SECONDS", 0.05)
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path, more=(PRESENCES,)) as alice:
        bob = Peer("bob", 2)
        room = (await alice.bus.room.create(name="r", invite=[bob.id]))["room_id"]
        await alice.bus.presence.set(room_id=room, status="back at three")
        late = Late(hub, room, alice.id, bob.id)
        end = late.comes()
        with anyio.fail_after(SECONDS):
            while not late.heard:
                await anyio.sleep(0.01)
        end()
        late.comes()
        with anyio.fail_after(SECONDS):
            while len(late.heard) < 2:
                await anyio.sleep(0.01)
        assert set(late.heard) == {"back at three"}


@pytest.mark.anyio
async def test_tokens_that_come_and_go_have_words_said_again_once(tmp_path: Path) -> None:
    said: list[list[str]] = []
    calls: list[Any] = []

    class Passes:
        def say_again(self, room_id: str) -> None:
            said[-1].append(room_id)

    class Parts:
        ephemeral = Passes()

    async def call(run: Any) -> Any:
        said.append([])
        return run(Parts())

    async with anyio.create_task_group() as group:

        def soon(run: Any) -> None:
            calls.append(run)
            group.start_soon(run)

        again = SaidAgain(cast("CallEngine", call), soon)
        for number in range(10_000):
            again.want([f"room {number % 200}"])
        with anyio.fail_after(SECONDS):
            while not said:
                await anyio.sleep(0.01)
        assert len(calls) == 1
        assert [len(rooms) for rooms in said] == [said_again.MAX_AT_ONCE]
        again.want(f"more {number}" for number in range(10_000))
        assert len(again._rooms) == said_again.MAX_WAITING
        group.cancel_scope.cancel()


def test_who_has_heard_it_hears_nothing_new_when_it_is_said_again() -> None:
    alice, bob, room, heard = two()
    say(alice, room, status="here", typing=True)
    bob.hear(alice.published())
    bob.engine.ephemeral.token(room, alice.id, there=True)
    before = list(heard.events)
    later(alice, bob, ms=MIN_PAUSE_MS + 1)
    alice.engine.ephemeral.say_again(room)
    [word] = alice.published()
    bob.hear([word])
    assert heard.events == before
    assert here(bob, room)[alice.id]["status"] == "here"
