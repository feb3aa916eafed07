"""The tools for talking: they call operations on rooms, and wait for rooms and delegations at once (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.api.conversations import (
    LIST_CONVERSATIONS,
    READ_MESSAGE,
    SAY,
    ReadConversation,
    Say,
    WhichMessage,
)
from sublet.daemon.api.delegation_fields import ListNewest
from sublet.daemon.api.delegations import LIST_DELEGATIONS
from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_news import (
    FOLLOW_NEWS,
    LIST_WATCHES,
    SET_WATCH,
    UNSET_WATCH,
    FollowNews,
    RoomEvent,
    SetWatch,
    UnsetWatch,
    Watches,
)
from sublet.daemon.api.rooms import WHOAMI
from sublet.mcp_server.answers import Answer
from sublet.mcp_server.broadcast_tools import is_broadcast, read_broadcasts, say_to_all
from sublet.mcp_server.call import Call
from sublet.mcp_server.room_answers import (
    Event,
    KnownRooms,
    Sent,
    Watched,
    WatchFacts,
    message_facts,
    receipt_facts,
)
from sublet.mcp_server.room_arguments import ReadMessages, SendMessage, Watch
from sublet.mcp_server.room_pages import (
    MAX_LIST_CHARS,
    found_answer,
    in_full,
    page_answer,
    size_in_list,
    with_attachment,
)
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event as DaemonEvent
from sublet.protocol.events import EventKind
from sublet.protocol.text import clean_line

MAX_EVENT_CHARS: Final = 500
MAX_WATCHES_SHOWN: Final = 40
DELEGATION_EVENTS: Final = 100
HALF_SECOND: Final = 0.5
"""Before the deadline, for putting the answer together."""
TOLD: Final = frozenset(
    {
        EventKind.DELEGATION_STATE,
        EventKind.DELEGATION_CONDITION,
        EventKind.DELEGATION_AUDIT,
        EventKind.DELEGATION_FOLLOW_UP,
    }
)
"""Of delegations; what their agents print is for ``delegate_output``."""


async def send_message(call: Call, given: SendMessage) -> Answer:
    """Say something, and tell where it went."""
    if is_broadcast(given.to):
        return await say_to_all(call, given)
    words = Say(
        to=given.to,
        body=given.message,
        format=given.format,
        reply_to=given.reply_to,
        reply_room=given.reply_room,
        thread=given.thread,
        channels=given.channels,
        attachments=given.attachments,
    )
    said = await call.operations.call(SAY, words)
    return Sent(
        ref_id=said.ref_id,
        room_id=said.room_id,
        created_at=said.created_at,
        author=said.author,
        recipients=receipt_facts(said.recipients),
        recipients_total=len(said.recipients),
        receipt=said.receipt,
        next_step=f"watch(room={said.room_id!r}, wait_seconds=45) waits for an answer.",
    )


async def read_messages(call: Call, given: ReadMessages) -> Answer:
    """Show a page of messages, or one message in full."""
    if is_broadcast(given.room):
        return await read_broadcasts(call, given)
    if given.query is not None:
        return await found_answer(call.operations, given.query, given.room, given.limit, given.cursor)
    if given.ref_id is not None:
        request = WhichMessage(room=str(given.room), ref_id=given.ref_id)
        message = await call.operations.call(READ_MESSAGE, request)
        if given.attachment:
            message = await with_attachment(call.operations, message)
        return in_full(message, int(given.cursor or 0))
    asked = ReadConversation(
        room=given.room, thread=given.thread, channel=given.channel, limit=given.limit, before=given.cursor
    )
    return await page_answer(call.operations, asked)


async def watch(call: Call, given: Watch) -> Answer:
    """Set, end or list watches, or tell what has happened."""
    if given.action == "list":
        return _watches(await call.operations.call(LIST_WATCHES, Nothing()))
    if given.action == "unset":
        ended = UnsetWatch(room=str(given.room), ref_id=given.ref_id)
        return _watches(await call.operations.call(UNSET_WATCH, ended))
    if given.action == "set":
        wanted = SetWatch(
            room=str(given.room),
            ref_id=given.ref_id,
            channels=given.channels,
            reason=given.reason,
            on_reaction=given.on_reaction,
        )
        return _watches(await call.operations.call(SET_WATCH, wanted))
    return await _wait(call, given)


async def rooms_of(call: Call) -> KnownRooms:
    """Return the caller's rooms; a daemon that can't tell them still has a directory."""
    try:
        found = await call.operations.call(LIST_CONVERSATIONS, Nothing())
        return KnownRooms(found, (await call.operations.call(WHOAMI, Nothing())).entity_id)
    except SubletError as error:
        return KnownRooms([], error=clean_line(f"{error.code}: {error.message}", 200))


# Waiting


@dataclass(slots=True)
class _Heard:
    """What has been heard until now, and the cursors after it."""

    room_cursor: int | None
    delegation_cursor: int
    rooms: list[RoomEvent] = field(default_factory=list)
    delegations: list[DaemonEvent] = field(default_factory=list)
    more: bool = False
    missed: bool = False
    error: str | None = None
    failure: SubletError | None = None


async def _wait(call: Call, given: Watch) -> Answer:
    """Wait for news of rooms and, unless one room is asked for, of delegations; the first ends the wait for both."""
    if given.cursor is None:
        known = await call.operations.call(LIST_DELEGATIONS, ListNewest())
        newest = max((view.cursor for view in known), default=0)
        heard = _Heard(None, newest)
    else:
        room, _, delegation = given.cursor.partition(":")
        heard = _Heard(int(room) if room else None, int(delegation))
    until = min(
        anyio.current_time() + min(given.wait_seconds, MAX_WAIT_SECONDS),
        max(anyio.current_time(), call.deadline - HALF_SECOND),
    )
    async with anyio.create_task_group() as group:

        async def of_rooms() -> None:
            await _hear_rooms(call, given.room, heard, until)
            if heard.rooms or heard.failure is not None:
                group.cancel_scope.cancel()

        async def of_delegations() -> None:
            await _hear_delegations(call, heard, until)
            if heard.delegations:
                group.cancel_scope.cancel()

        group.start_soon(of_rooms)
        if given.room is None:
            group.start_soon(of_delegations)
    if heard.failure is not None:
        raise heard.failure
    return _news(heard, given.room)


async def _hear_rooms(call: Call, room: str | None, heard: _Heard, until: float) -> None:
    left = max(0.0, until - anyio.current_time())
    try:
        request = FollowNews(since=heard.room_cursor, wait=left, room=room)
        found = await call.operations.call(FOLLOW_NEWS, request)
    except SubletError as error:
        # Delegations are told of all the same; a wrong room is for the caller to mend.
        if room is not None or error.code is not LocalCode.UNAVAILABLE:
            heard.failure = error
        heard.error = clean_line(f"{error.code}: {error.message}", 200)
        return
    heard.room_cursor, heard.rooms, heard.more = found.cursor, found.events, found.more
    heard.missed = found.missed


async def _hear_delegations(call: Call, heard: _Heard, until: float) -> None:
    while True:
        left = max(0.0, until - anyio.current_time())
        asked = ReadEvents(cursor=heard.delegation_cursor, timeout=left, limit=DELEGATION_EVENTS)
        page = await call.operations.call(READ_EVENTS, asked)
        heard.delegation_cursor = page.cursor
        heard.delegations = [one for one in page.events if one.kind in TOLD and one.delegation_id is not None]
        if heard.delegations or left <= 0:
            return


def _news(heard: _Heard, only: str | None) -> Watched:
    """Return as many events as fit, and the cursors after those; ``only`` is the one room that was asked for."""
    shown: list[Event] = []
    reserve = "x" * (300 + len(only or ""))
    answer = Watched(events=[], next_cursor="9" * 37, more=False, rooms_error=heard.error, next_step=reserve)
    size = answer.size()
    room, delegation, more = heard.room_cursor, heard.delegation_cursor, heard.more
    for number, event in enumerate(heard.rooms):
        facts = _room_event(event)
        size += size_in_list(facts)
        if shown and size > MAX_LIST_CHARS:
            more = True
            room = heard.rooms[number - 1].cursor
            break
        shown.append(facts)
    for number, one in enumerate(heard.delegations):
        news = _delegation_event(one)
        size += size_in_list(news)
        if shown and size > MAX_LIST_CHARS:
            more = True
            delegation = heard.delegations[number - 1].seq if number else one.seq - 1
            break
        shown.append(news)
    return answer.model_copy(
        update={
            "events": shown,
            "next_cursor": f"{'' if room is None else room}:{delegation}",
            "more": more,
            "missed": heard.missed or None,
            "next_step": _next_step(shown, f"{'' if room is None else room}:{delegation}", only),
        }
    )


def _next_step(shown: Sequence[Event], cursor: str, only: str | None) -> str:
    room = "" if only is None else f"room={only!r}, "
    again = f"watch({room}cursor={cursor!r}, wait_seconds={MAX_WAIT_SECONDS:.0f}) waits for what comes next"
    if any(event.message is not None for event in shown):
        return f"send_message(to=room_id, reply_to=ref_id) answers; read_messages reads it all; {again}."
    return f"{again}."


def _room_event(event: RoomEvent) -> Event:
    data = event.data

    def word(name: str) -> str | None:
        value = data.get(name)
        return clean_line(value, 100) if isinstance(value, str) else None

    return Event(
        kind=event.kind,
        room_id=event.room_id,
        entity=word("entity") or word("by"),
        channel=word("channel"),
        watched_ref=word("watched_ref"),
        emoji=word("emoji"),
        message=message_facts(event.message, MAX_EVENT_CHARS, of_room=event.room_id) if event.message else None,
    )


def _delegation_event(event: DaemonEvent) -> Event:
    data = event.data
    state, code = data.get("state"), data.get("code")
    condition = data.get("condition")
    what = condition.get("kind") if isinstance(condition, dict) else None
    return Event(
        kind=str(event.kind),
        delegation_id=event.delegation_id,
        state=clean_line(str(state or what), 40) if state or what else None,
        code=clean_line(code, 64) if isinstance(code, str) else None,
    )


def _watches(found: Watches) -> Watched:
    every = [
        *(
            WatchFacts(room_id=one.room_id, ref_id=one.ref_id, reason=clean_line(one.reason) or None)
            for one in found.refs
        ),
        *(
            WatchFacts(
                room_id=one.room_id,
                channels=[clean_line(name, 64) for name in one.channels[:16]],
                this_room_only=one.scope == "this_room",
            )
            for one in found.channels
        ),
    ]
    return Watched(
        watches=every[:MAX_WATCHES_SHOWN],
        watches_total=len(every),
        removed=found.removed,
        next_step="watch(action='wait', wait_seconds=45) tells what happens there.",
    )
