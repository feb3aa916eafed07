"""Members that lie while a room is reconciled: they cost a bounded little, and keep nobody from what others have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.reconciling.exchange import MAX_IN_VAIN
from sublet.messaging.syncing import answers
from sublet.messaging.syncing.sync import MAX_SINGLE
from sublet.messaging.syncing.wanted import Wanted, WantedDocument, WantedRoom
from sublet.protocol.ezagent.digest_tree import FAN_OUT, MAX_DEPTH, PLACE_BYTES
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.reconciliation import (
    MAX_PREFIXES,
    Differing,
    LogsAsked,
    NodesAsked,
    decode_asked,
    encode_differing,
)
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio

Lie = Callable[[NodesAsked | LogsAsked], bytes | None]


def asked_by(one: Member, of: Member, room: str) -> list[bytes]:
    """Return what a member asks another one of a room's tree, from now on."""
    asked: list[bytes] = []
    wanted, query = doc_id("tree", room_id=room, entity_id=of.id), one.network.query

    def noting(key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
        if key == wanted:
            asked.append(payload)
        return query(key, payload, timeout_seconds)

    one.network.query = noting  # type: ignore[method-assign, assignment]
    return asked


def everything(asked: NodesAsked | LogsAsked) -> bytes | None:
    """Say that everything differs, and tell of nothing."""
    if isinstance(asked, LogsAsked):
        return None
    return encode_differing(
        [Differing(digits=tuple(range(FAN_OUT))) if len(one.prefix) < MAX_DEPTH else Differing() for one in asked.below]
    )


def bogus(asked: NodesAsked | LogsAsked) -> bytes | None:
    """Name places where nothing is, and say nothing of them."""
    if isinstance(asked, LogsAsked):
        return None
    places = tuple(bytes([number]) * PLACE_BYTES for number in range(32))
    return encode_differing([Differing(places=places if not one.prefix else ()) for one in asked.below])


@pytest.mark.parametrize("lie", [everything, bogus])
async def test_a_member_that_lies_costs_a_bounded_little_and_hides_nothing_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: Lie
) -> None:
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path, more=EXTENSIONS) as alice,
        member("bob", 2, hub, tmp_path, more=EXTENSIONS) as bob,
        member("mallory", 3, hub, tmp_path, more=EXTENSIONS) as mallory,
    ):
        room = await room_of(alice, bob, mallory)
        ref = (await alice.bus.message.send(room_id=room, body="first"))["ref_id"]
        for one in (bob, mallory):
            await one.until(room, lambda bodies: bodies == ["first"])
        honest = answers.tree
        engine = await mallory.service.on_engine(lambda engine: engine)
        monkeypatch.setattr(
            answers,
            "tree",
            lambda parts, room_id, body: lie(decode_asked(body)) if parts is engine else honest(parts, room_id, body),
        )
        hub.loss = 1.0
        await mallory.bus.message.send(room_id=room, body="something that nobody gets")
        await alice.bus.reactions.add(room_id=room, ref_id=ref, emoji="👍")
        asked = asked_by(bob, mallory, room)
        with anyio.fail_after(SECONDS):
            while "reactions" not in await bob.bus.timeline.get_ref(room_id=room, ref_id=ref):
                await bob.service.asking.room(room)
        for _ in range(3):
            await bob.service.asking.room(room)
        assert asked
        assert len(asked) < 8 * (MAX_IN_VAIN / MAX_PREFIXES + 2)
        due = await bob.service.on_engine(lambda engine: len(engine.store.tree.due(room, 10_000)))
        assert due <= 128


async def test_of_very_much_that_is_doubted_at_once_the_room_is_reconciled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member("alice", 1, MemoryHub(), tmp_path) as alice:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        wanted: list[Wanted] = []
        monkeypatch.setattr(alice.service._sync, "want", wanted.append)
        for number in range(MAX_SINGLE + 1):
            name = doc_id("index", room_id=room, shard_id=f"2026-11-{number + 1:03}")
            alice.service._sync.doubt(WantedDocument(name))
        assert wanted[-1] == WantedRoom(room)
