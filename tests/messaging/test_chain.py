"""Members of whom not every two have a link: those between them pass on what is written, and who was invited."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from sublet.messaging.delivery.acknowledged import bundle_of, take
from sublet.messaging.membership import catching_up
from sublet.protocol.ezagent.acknowledgement import Acknowledgement
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.keys import doc_id
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub
from support.rooms import entity_key, peers, shared_room

pytestmark = pytest.mark.anyio


async def until_shown(reader: Member, room: str, *wanted: str) -> None:
    """Wait until a room shows what is wanted, without anybody being told to ask."""
    with anyio.fail_after(SECONDS):
        while await reader.bodies(room) != list(wanted):
            await anyio.sleep(0.02)


async def test_who_has_no_link_to_a_writer_is_brought_in_and_hears_through_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "PERIOD_SECONDS", 3_600.0)
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path) as alice,
        member("bob", 2, hub, tmp_path) as bob,
        member("carol", 3, hub, tmp_path) as carol,
    ):
        hub.cut(alice.network, carol.network)
        room = await room_of(alice, bob)
        await alice.bus.message.send(room_id=room, body="before")
        await alice.bus.room.invite(room_id=room, entity=carol.id)
        await until_shown(carol, room, "before")
        await alice.bus.message.send(room_id=room, body="from one end")
        await until_shown(carol, room, "before", "from one end")
        await carol.bus.message.send(room_id=room, body="and the other")
        await until_shown(alice, room, "before", "from one end", "and the other")
        await until_shown(bob, room, "before", "from one end", "and the other")


def test_only_months_that_are_heard_are_asked_for() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    document = doc_id("delivery", room_id=room)

    def claimed(clocks: dict[str, dict[int, int]]) -> list[str]:
        payload = Acknowledgement(b"12345678", clocks).encode()
        raw = seal(entity_key("bob"), bob.id, document, alice.clock.now_ms, payload).raw
        return list(take(alice.engine, room, bundle_of([raw])).ahead)

    this = alice.engine.shards.current_month()
    assert claimed({this: {7: 9}, "2019-01": {7: 9}}) == [doc_id("index", room_id=room, shard_id=this)]
    alice.do("message.send", room_id=room, body="hello")
    bob.hear(alice.published())
    bob.do("message.send", room_id=room, body="hello")
    alice.hear(bob.published())
    row = alice.store.find_document(doc_id("index", room_id=room, shard_id=this))
    assert row is not None
    held = {client: clock for client, (clock, _) in alice.store.clients(row.number).items()}
    assert held
    assert claimed({this: held}) == []
    assert claimed({this: {client: clock + 1 for client, clock in held.items()}}) != []
