"""A room for each delegation, opened by the delegator's daemon once the work has begun, closed when it is over.

Its members are the person and whoever delegated on the lending side, the agent, the person and the daemon on the
other. What becomes of the delegation is told there. The room is an addition: nothing of a lease waits for it, and what
fails here is logged and fails nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.abc
import structlog

from sublet.daemon.rooms.entities import agent_of, daemon_of, human_of
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord, RoomRecord
from sublet.messaging.calls import message_calls, room_calls
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventFilter, EventKind
from sublet.protocol.ezagent.ids import ROOM_SALT_BYTES, EntityId, RoomId, is_entity_id, room_id
from sublet.protocol.ids import node_id as node_id_of
from sublet.protocol.lifecycle import DELEGATION_TABLE, DelegationState, is_terminal
from sublet.protocol.text import clean_line
from sublet.tasks import start_alone

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream

    from sublet.messaging.service import MessagingService

RESULT: Final = "result"
"""The channel of the agent's last word."""
CLOSED_LEVEL: Final = 100
"""Who may still write in a closed room: its owner, the daemon."""
LAST_WORD_SECONDS: Final = 15.0
"""How long a room stays open after the end for the agent's last word, which comes by another way than the end."""
LOOK_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 1.0
OPEN_SECONDS: Final = 0.5
"""How long a room waits for the work to begin: until then both daemons are busy with what somebody waits for."""
MAX_ROOMS: Final = 512
"""Delegations whose rooms are attended to at once."""
MAX_TOLD: Final = 64
"""Events of one delegation that may wait to be told."""
RECENT: Final = 50
"""Delegations that are over, whose rooms a start looks after in case an earlier process could not close them."""
MAX_NAME_CHARS: Final = 200
MAX_DETAIL_CHARS: Final = 400
_EVENTS_DEFAULT: Final = "power_levels.events_default"
_BEGINNING: Final = frozenset({DelegationState.ACCEPTED, DelegationState.STARTED})
_ENDS: Final = frozenset(state for state in DelegationState if is_terminal(DELEGATION_TABLE, state))
_UNTOLD: Final = frozenset({"queued", "retrying", "ending", "waiting_for_answer"})
"""Conditions that are not worth a message, or that the agent tells by itself."""

log = structlog.get_logger(__name__)


class LentRooms:
    """Implements ``RoomPlans``; ``serve`` must run for the rooms to be opened.

    Args:
        journal: tells what becomes of delegations.
        messaging: runs the rooms.
        node_id: ours.
    """

    def __init__(self, journal: Journal, messaging: Messaging, node_id: str) -> None:
        self._journal = journal
        self._messaging = messaging
        self._node_id = node_id
        self._me = daemon_of(node_id)
        self._attended: dict[str, MemoryObjectSendStream[Event]] = {}
        self._rooms: dict[str, RoomId] = {}

    def plan(self, peer_key: bytes, entity: str | None) -> RoomRecord | None:
        """``RoomPlans.plan``."""
        if entity is None or not self._messaging.running or not is_entity_id(entity):
            return None
        if self._messaging.home(entity) != node_id_of(peer_key):
            return None  # it names somebody else's agent
        created, salt = time.time_ns() // 1_000_000, os.urandom(ROOM_SALT_BYTES)
        return RoomRecord(room_id=room_id(self._me, created, salt), created_ms=created, salt=salt.hex(), entity=entity)

    def attended(self) -> frozenset[RoomId]:
        """Return the rooms that are looked after now."""
        return frozenset(self._rooms.values())

    async def serve(self) -> None:
        """Look after the rooms until cancelled."""
        while True:
            try:
                cursor = await self._journal.events.newest_event()
                left = await self._journal.list_settled(settled=False)
                over = await self._journal.list_settled(settled=True, limit=RECENT)
                break
            except SubletError as error:
                log.warning("rooms of delegations are not looked after for now", reason=str(error))
                await anyio.sleep(RETRY_SECONDS)
        self._attended.clear()
        self._rooms.clear()
        async with anyio.create_task_group() as group:
            for record in (*left, *over):
                if record.room is not None:
                    self._attend(group, record.id)
            group.start_soon(self._follow, group, cursor, EventKind.DELEGATION_STATE)
            group.start_soon(self._follow, group, cursor, EventKind.DELEGATION_CONDITION)

    async def _follow(self, group: anyio.abc.TaskGroup, cursor: int, kind: EventKind) -> None:
        """Give events of one kind to whoever attends to the room of their delegation."""
        while True:
            try:
                page = await self._journal.events.wait_for_events(
                    cursor, timeout=LOOK_SECONDS, only=EventFilter(kind=kind, sessions=False)
                )
            except SubletError as error:
                log.warning("rooms of delegations are not told of events for now", reason=str(error))
                await anyio.sleep(RETRY_SECONDS)
                continue
            cursor = page.cursor
            for event in page.events:
                found = event.delegation_id
                if found is None:
                    continue
                if event.data.get("state") == DelegationState.ACCEPTED and found not in self._attended:
                    self._attend(group, found)
                elif (stream := self._attended.get(found)) is not None:
                    try:
                        stream.send_nowait(event)
                    except anyio.WouldBlock:
                        log.warning("an event of a delegation is not told in its room", delegation_id=found)

    def _attend(self, group: anyio.abc.TaskGroup, delegation_id: str) -> None:
        if len(self._attended) >= MAX_ROOMS:
            log.warning("a delegation has no room: too many are open", delegation_id=delegation_id)
            return
        send, receive = anyio.create_memory_object_stream[Event](MAX_TOLD)
        self._attended[delegation_id] = send

        async def run() -> None:
            try:
                with send, receive:
                    await self._room(delegation_id, receive)
            except Exception as error:
                # Of no consequence for the delegation, which is none of the room's business.
                log.warning("the room of a delegation failed", delegation_id=delegation_id, reason=str(error))
            finally:
                self._attended.pop(delegation_id, None)
                self._rooms.pop(delegation_id, None)

        start_alone(group, "the room of a delegation", run)

    async def _room(self, delegation_id: str, events: anyio.abc.ObjectReceiveStream[Event]) -> None:
        """Open the room, tell there what becomes of the delegation, and close it."""
        record = await self._journal.require_delegation(delegation_id)
        if record.room is None:
            return
        self._rooms[delegation_id] = record.room.room_id
        service = await self._messaging.use()
        event = await _worth_telling(events) if record.state in _BEGINNING else None
        if await self._opened(service, record, record.room):
            return
        if event is not None and (text := _told(event)) is not None:
            await self._say(service, record, text)
        while not (record := await self._journal.require_delegation(delegation_id)).terminal:
            event = None
            with anyio.move_on_after(LOOK_SECONDS):
                event = await events.receive()
            if event is not None and (text := _told(event)) is not None:
                await self._say(service, record, text)
        await self._say(service, record, _end(record))
        await self._close(service, record)

    async def _opened(self, service: MessagingService, record: DelegationRecord, room: RoomRecord) -> bool:
        """Open the room unless it is there already; tell whether it is closed."""
        try:
            config = (await service.call(self._me, room_calls.get, room_id=room.room_id))["config"]
        except SubletError as error:
            if error.code is not LocalCode.NOT_FOUND:
                raise
        else:
            return is_closed(config)
        person, others = (
            self._messaging.device.person,
            _others(record, room, self._node_id, self._messaging.home(room.entity)),
        )
        await service.call(
            self._me,
            room_calls.create,
            name=clean_line(f"Delegation {record.id}: {record.description}", MAX_NAME_CHARS),
            invite=[person, *others],
            seed=(room.created_ms, bytes.fromhex(room.salt)),
            encryption=self._messaging.encryption,
        )
        await service.call(self._me, room_calls.invite, room_id=room.room_id, entity=person, role="admin")
        whom = record.peer if record.agent is None else f"{record.peer}/{record.agent}"
        text = (
            f"{clean_line(record.description, MAX_DETAIL_CHARS)}\n"
            f"{record.id} is accepted by {whom}: {record.access_mode} access for {record.ttl_seconds} s."
        )
        await self._say(service, record, text)
        return False

    async def _say(self, service: MessagingService, record: DelegationRecord, text: str) -> None:
        """Say something as the daemon; what the room refuses, such as too much at once, is not said."""
        assert record.room is not None
        try:
            await service.call(self._me, message_calls.send, room_id=record.room.room_id, body=text)
        except SubletError as error:
            log.warning("a delegation's room is not told something", delegation_id=record.id, reason=str(error))

    async def _close(self, service: MessagingService, record: DelegationRecord) -> None:
        """Let nobody write any more, once the agent has said its last word or has had the time to."""
        assert record.room is not None
        room = record.room
        with anyio.move_on_after(LAST_WORD_SECONDS):
            cursor = await service.cursor()
            page = await service.call(self._me, message_calls.list_timeline, room_id=room.room_id, peek=True)
            while not any(_is_last_word(ref, room.entity) for ref in page["refs"]):
                found = await service.watch(self._me, cursor, LAST_WORD_SECONDS, room.room_id)
                cursor = found["cursor"]
                page = await service.call(self._me, message_calls.list_timeline, room_id=room.room_id, peek=True)
        changes = {_EVENTS_DEFAULT: CLOSED_LEVEL}
        await service.call(self._me, room_calls.update_config, room_id=room.room_id, changes=changes)


async def _worth_telling(events: anyio.abc.ObjectReceiveStream[Event]) -> Event | None:
    """Wait until there is something to tell, or an end, and return it; None where nothing comes for a moment."""
    with anyio.move_on_after(OPEN_SECONDS):
        async for event in events:
            if _told(event) is not None or event.data.get("state") in _ENDS:
                return event
    return None


def is_closed(config: Mapping[str, Any]) -> bool:
    """Tell from a room's config, by names with dots, whether only its owner may still write."""
    level = config.get(_EVENTS_DEFAULT, 0)
    return bool((level.get("level") if isinstance(level, dict) else level) == CLOSED_LEVEL)


def _others(record: DelegationRecord, room: RoomRecord, node_id: str, executor: str) -> list[EntityId]:
    """Return who takes part beside the delegator's person: whoever delegated, and the other side.

    Args:
        record: the delegation.
        room: its room.
        node_id: ours.
        executor: the node id of the other side.
    """
    kind, _, name = record.caller.partition(":")
    caller = f"@mcp:{node_id}" if kind == "mcp" else agent_of(name, node_id) if kind == "agent" else None
    there = [room.entity, human_of(executor), daemon_of(executor)]
    return [*([caller] if caller is not None else []), *there]


def _told(event: Event) -> str | None:
    """Return what is said of an event; None for nothing."""
    if event.kind == EventKind.DELEGATION_STATE:
        state = str(event.data.get("state"))
        return "The agent is at work." if state == DelegationState.RUNNING else None
    condition = event.data.get("condition")
    if not isinstance(condition, dict) or condition.get("kind") in _UNTOLD:
        return None
    kind = clean_line(str(condition.get("kind")), 40).replace("_", " ")
    return f"{kind[:1].upper()}{kind[1:]}: {clean_line(str(condition.get('detail', '')), MAX_DETAIL_CHARS)}"


def _end(record: DelegationRecord) -> str:
    code = f" ({clean_line(record.error.code, 64)})" if record.error is not None else ""
    return f"{record.id} is {record.state}{code}. This room is closed now; what was said stays."


def _is_last_word(ref: dict[str, Any], entity: EntityId) -> bool:
    return ref["author"] == entity and RESULT in (ref.get("ext.channels") or [])
