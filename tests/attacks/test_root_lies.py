"""Members that sign for what they do not show, or say nothing once they are compared with: found, and told of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from sublet.messaging.reconciling.contradictions import CONTRADICTED_EVENT, Lie
from sublet.messaging.syncing import answers, asking, reconciler
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.reconciliation import Differing, NodesAsked, decode_asked, encode_differing
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio

NEVER = 3_600.0


async def told(one: Member) -> list[dict[str, Any]]:
    found = await one.service.on_engine(lambda engine: engine.events.since(0))
    return [event.data for event in found if event.kind == CONTRADICTED_EVENT]


async def test_a_member_that_withholds_what_it_has_signed_is_told_of_in_the_room_and_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path) as alice,
        member("bob", 2, hub, tmp_path) as bob,
        member("mallory", 3, hub, tmp_path) as mallory,
    ):
        room = await room_of(alice, bob, mallory)
        for one in (alice, bob, mallory):
            await one.service.asking.room(room)
        honest = answers.tree
        engine = await mallory.service.on_engine(lambda engine: engine)

        def hiding(parts: Any, room_id: str, body: bytes) -> bytes | None:
            asked = decode_asked(body)
            if parts is not engine or not isinstance(asked, NodesAsked):
                return honest(parts, room_id, body)
            return encode_differing([Differing() for _ in asked.below])

        monkeypatch.setattr(answers, "tree", hiding)
        monkeypatch.setattr(answers, "state", lambda parts, *_: None)
        hub.loss = 1.0
        await mallory.bus.message.send(room_id=room, body="for nobody")
        with anyio.fail_after(SECONDS):
            while not bob.service.contradicted:
                await bob.service.asking.room(room)
        assert bob.service.contradicted == {(room, mallory.id): Lie.WITHHELD}
        assert await told(bob) == [{"room_id": room, "entity": mallory.id, "how": "withheld"}]
        assert await told(alice) == []
        monkeypatch.undo()
        await mallory.bus.message.send(room_id=room, body="for all")
        with anyio.fail_after(SECONDS):
            while bob.service.contradicted:
                await bob.service.asking.room(room)
        assert await bob.bodies(room) == ["for nobody", "for all"]


async def test_a_member_that_is_mute_when_it_is_compared_with_keeps_nobody_from_what_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANSWER_SECONDS", "ANYBODY_SECONDS"):
        monkeypatch.setattr(asking, name, NEVER)
    monkeypatch.setattr(reconciler, "STALL_SECONDS", 0.1)
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path) as alice,
        member("bob", 2, hub, tmp_path) as bob,
        member("mallory", 3, hub, tmp_path) as mallory,
    ):
        room = await room_of(alice, bob, mallory)
        for one in (alice, bob, mallory):
            await one.service.asking.room(room)
        hub.loss = 1.0
        await mallory.bus.message.send(room_id=room, body="hers")
        await alice.bus.message.send(room_id=room, body="honest")
        of_mallory = doc_id("tree", room_id=room, entity_id=mallory.id)
        ask = bob.network.ask

        def mute(peer: str, key: str, payload: bytes, seconds: float, hear: Any) -> Any:
            if key == of_mallory:
                return lambda: None
            return ask(peer, key, payload, seconds, hear)

        monkeypatch.setattr(bob.network, "ask", mute)
        monkeypatch.setattr(answers, "state", lambda parts, *_: None)
        with anyio.fail_after(SECONDS):
            while "honest" not in await bob.bodies(room):
                await bob.service.asking.room(room)
            await bob.service.asking.room(room)
        assert "honest" in await bob.bodies(room)
