"""D46: in the list of rooms the newest activity is first; rooms of delegations, and closed ones, stand apart."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from sublet.cli.rendering.entity_names import EntityNames
from sublet.cli.rendering.rooms import rooms
from sublet.daemon.api.conversations import LIST_CONVERSATIONS
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_messages import SEND_MESSAGE, SendMessage
from sublet.daemon.api.rooms import CREATE_ROOM, LIST_ROOMS, CreateRoom
from sublet.daemon.rooms.entities import daemon_of
from sublet.daemon.rooms.lent_rooms import CLOSED_LEVEL
from sublet.messaging.calls import message_calls, room_calls
from sublet.protocol.ezagent.ids import entity_domain, own_ref_id, ref_ms

from .test_conversations import HUMAN, World, world

pytestmark = pytest.mark.anyio


async def of_delegation(at: World, name: str, *, closed: bool) -> None:
    daemon = daemon_of(entity_domain(at.hers))
    made = await at.service.call(daemon, room_calls.create, name=name, invite=[at.hers])
    await at.service.call(daemon, message_calls.send, room_id=made["room_id"], body="The agent is at work.")
    if closed:
        changes = {"power_levels.events_default": CLOSED_LEVEL}
        await at.service.call(daemon, room_calls.update_config, room_id=made["room_id"], changes=changes)


async def test_the_room_of_a_person_is_not_the_last_of_many(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        old, used = [(await at.call(CREATE_ROOM, CreateRoom(name=name), HUMAN)).room_id for name in ("Old", "Used")]
        await of_delegation(at, "Done", closed=True)
        await of_delegation(at, "Running", closed=False)
        await at.call(SEND_MESSAGE, SendMessage(room_id=used, body="hello"), HUMAN)
        found = await at.call(LIST_ROOMS, Nothing(), HUMAN)
        assert [(one.name, one.kind, one.closed) for one in found] == [
            ("Used", "talk", False),
            ("Old", "talk", False),
            ("Running", "delegation", False),
            ("Done", "delegation", True),
        ]
        await at.call(SEND_MESSAGE, SendMessage(room_id=old, body="again"), HUMAN)
        found = await at.call(LIST_ROOMS, Nothing(), HUMAN)
        assert [one.name for one in found] == ["Old", "Used", "Running", "Done"]
        console = Console(file=io.StringIO(), width=200)
        for piece in rooms(found, EntityNames(at.hers, {}), {}):
            console.print(piece)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert text.index("Used") < text.index("Of delegations under way:") < text.index("Running")
        assert text.index("Running") < text.index("Closed:") < text.index("Done")
        # Agents are told of what they have not read first, and of closed rooms last.
        listed = [one.name for one in await at.call(LIST_CONVERSATIONS, Nothing(), HUMAN)]
        assert listed == ["Running", "Old", "Used", "Done"]


def test_a_ref_tells_when_it_was_written() -> None:
    assert ref_ms(own_ref_id(1_764_000_000_123, "019a0000-0000-7000-8000-000000000001", "@a:b", 7)) == 1_764_000_000_123
