"""The room of a delegation: opened once, told what happens, closed at the end, whenever the daemon is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from sublet.daemon.api.delegation_views import ConditionView, LeaseQuota
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.rooms import lent_rooms
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.lent_rooms import RESULT, LentRooms, is_closed
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord, ResourceRecord, RoomRecord
from sublet.messaging.service import MessagingService
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.ids import node_id
from sublet.protocol.lifecycle import DelegationState
from sublet.tasks import Service, Services
from support.namespaces_of_entities import allow_namespaces, named_elsewhere
from support.pairing import side
from support.rooms import ANY_BUS, daemon_key

pytestmark = pytest.mark.anyio
BEGUN = (DelegationState.CREATED, DelegationState.INVITED, DelegationState.ACCEPTED)


@dataclass
class World:
    """A lender whose agent in the lease is, for once, one of its own: so that a test can let it speak."""

    journal: Journal
    messaging: Messaging
    service: MessagingService
    rooms: LentRooms
    node: str
    key: bytes

    def plan(self) -> RoomRecord:
        found = self.rooms.plan(self.key, f"@helper:{self.node}")
        assert found is not None
        return found

    async def page(self, room: RoomRecord) -> list[dict[str, Any]]:
        try:
            found = await self.service.call(
                f"@human:{self.node}", "timeline.list", room_id=room.room_id, limit=50, peek=True
            )
        except SubletError:
            return []  # not opened yet
        return list(found["refs"])

    async def until(self, room: RoomRecord, words: str) -> None:
        with anyio.fail_after(30):
            while not any(words in str(ref["body"]) for ref in await self.page(room)):
                await anyio.sleep(0.01)

    async def until_closed(self, room: RoomRecord) -> None:
        with anyio.fail_after(30):
            while not is_closed(
                (await self.service.call(f"@human:{self.node}", "room.get", room_id=room.room_id))["config"]
            ):
                await anyio.sleep(0.01)

    async def helper_says(self, room: RoomRecord, body: str, *channels: str) -> None:
        ext = {"ext": {"channels": list(channels)}} if channels else {}
        await self.service.call(f"@helper:{self.node}", "message.send", room_id=room.room_id, body=body, **ext)

    async def move(self, record: DelegationRecord, *states: DelegationState, **changes: object) -> DelegationRecord:
        """Journal one state after the other, and the changes with the last one."""
        for state in states:
            record = record.model_copy(update={"state": state, **(changes if state is states[-1] else {})})
            await self.journal.save_delegation(record, EventKind.DELEGATION_STATE, {"state": str(state)})
        return record


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    port = BusPort(ANY_BUS, None)
    try:
        async with side(directory, 1) as half, anyio.create_task_group() as group:
            messaging = Messaging(
                half.identity, directory, port, half.peers, half.link, MessagingConfig(), lambda: ["helper"]
            )
            node = half.identity.node_id
            rooms = LentRooms(half.journal, messaging, node)
            assert rooms.plan(bytes(half.identity.key.verify_key), f"@helper:{node}") is None, "rooms don't run yet"
            Services().start(group, Service("rooms", messaging.serve, messaging.wanted))
            service = await messaging.use()
            yield World(half.journal, messaging, service, rooms, node, bytes(half.identity.key.verify_key))
            group.cancel_scope.cancel()
    finally:
        port.close()


def created(caller: str = "mcp:claude-code") -> DelegationRecord:
    return DelegationRecord(
        id="dlg_1",
        caller=caller,
        request=CreateDelegation(workspace_dir="/w", peer="bob", prompt="p"),
        peer="bob",
        agent="helper",
        resources=(ResourceRecord(name="workspace", path="/w", access_mode="rw"),),
        description="Mend the \x1b[31mgreeting",
        access_mode="rw",
        ttl_seconds=60,
        quota=LeaseQuota(max_total_bytes=1, max_files=1, max_file_bytes=1),
        created_at="2026-01-01T00:00:00Z",
        updated_at="2026-01-01T00:00:00Z",
    )


async def test_it_tells_what_happens_and_closes_after_the_agents_last_word(tmp_path: Path) -> None:
    async with world(tmp_path) as at, anyio.create_task_group() as group:
        room = at.plan()
        group.start_soon(at.rooms.serve)
        record = await at.move(created(), *BEGUN, room=room)
        await at.until(room, "Mend the greeting\ndlg_1 is accepted by bob/helper")
        members = await at.service.call(f"@mcp:{at.node}", "room.members", room_id=room.room_id)
        assert members == {
            f"@daemon:{at.node}": "owner",
            f"@human:{at.node}": "admin",
            f"@mcp:{at.node}": "member",
            f"@helper:{at.node}": "member",
        }
        record = await at.move(record, DelegationState.STARTED, DelegationState.RUNNING)
        await at.until(room, "The agent is at work.")
        shown = ConditionView(kind="degraded", detail="no link")
        await at.journal.save_delegation(
            record.model_copy(update={"condition": shown}),
            EventKind.DELEGATION_CONDITION,
            {"condition": shown.model_dump()},
        )
        await at.until(room, "Degraded: no link")
        record = record.model_copy(update={"condition": shown})
        await at.move(record, DelegationState.COMPLETED, settled=True)
        await at.until(room, "dlg_1 is completed")
        await at.helper_says(room, "All done.", RESULT)
        await at.until_closed(room)
        with pytest.raises(SubletError) as refused:
            await at.helper_says(room, "and another thing")
        assert refused.value.code is LocalCode.POLICY_DENIED
        group.cancel_scope.cancel()


async def test_an_agent_without_a_last_word_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lent_rooms, "LAST_WORD_SECONDS", 0.5)
    async with world(tmp_path) as at, anyio.create_task_group() as group:
        room = at.plan()
        group.start_soon(at.rooms.serve)
        record = await at.move(created("human:"), *BEGUN, room=room)
        await at.until(room, "is accepted")
        await at.move(record, DelegationState.CANCELLED, settled=True)
        await at.until_closed(room)
        members = await at.service.call(f"@human:{at.node}", "room.members", room_id=room.room_id)
        assert f"@mcp:{at.node}" not in members, "who has not delegated is not brought in"
        group.cancel_scope.cancel()


async def test_a_start_opens_the_rooms_that_were_planned_and_closes_those_that_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id stands in the record, so it is the same room whatever process opens it."""
    monkeypatch.setattr(lent_rooms, "LAST_WORD_SECONDS", 0.5)
    async with world(tmp_path) as at:
        room = at.plan()
        accepted = await at.move(created(), *BEGUN, room=room)
        async with anyio.create_task_group() as first:
            first.start_soon(at.rooms.serve)
            await at.until(room, "is accepted")
            first.cancel_scope.cancel()
        # Killed, and the delegation is over when the next process begins.
        await at.move(accepted, DelegationState.ERROR, settled=True)
        async with anyio.create_task_group() as second:
            second.start_soon(LentRooms(at.journal, at.messaging, at.node).serve)
            await at.until_closed(room)
            second.cancel_scope.cancel()
        words = [ref["body"] for ref in await at.page(room)]
        assert sum("is accepted" in text for text in words) == 1
        assert sum("is error" in text for text in words) == 1


async def test_a_peer_that_does_not_speak_rooms_or_names_anothers_agent_gets_none(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        for entity in (None, "@helper:node-aaaaaaaaaaaaaaaa", "helper", "@Helper:x y"):
            assert at.rooms.plan(at.key, entity) is None
        first, second = at.plan(), at.plan()
        assert first.room_id != second.room_id


async def test_an_agent_of_a_namespace_is_its_daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow_namespaces(monkeypatch)
    daemon = daemon_key("bob")
    agent = named_elsewhere("alice", daemon).record
    async with world(tmp_path) as lender:
        await lender.service.on_engine(lambda engine: engine.keyring.learn(agent.encode()))
        assert lender.rooms.plan(lender.key, agent.entity_id) is None
        planned = lender.rooms.plan(bytes(daemon.verify_key), agent.entity_id)
        assert planned is not None
        assert planned.entity == agent.entity_id
        home = lender.messaging.home(agent.entity_id)
    record = DelegationRecord.model_construct(caller="human:you")
    others = lent_rooms._others(record, planned, "node-of-ours", home)
    assert others == [agent.entity_id, f"@human:{home}", f"@daemon:{home}"]
    assert home == node_id(bytes(daemon.verify_key))
