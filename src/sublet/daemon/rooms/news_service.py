"""Serves the operations on news of rooms, and on watches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import anyio

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_news import (
    FOLLOW_NEWS,
    GET_NEWEST,
    LIST_WATCHES,
    MAX_NEWS,
    MAX_NEWS_CHARS,
    SET_WATCH,
    UNSET_WATCH,
    WATCH_ROOMS,
    FollowNews,
    News,
    RoomCursor,
    RoomEvent,
    RoomEvents,
    SetWatch,
    UnsetWatch,
    WatchedChannels,
    WatchedRef,
    Watches,
    WatchRooms,
)
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.answered import Answered
from sublet.daemon.rooms.finding import RoomFinder
from sublet.daemon.rooms.of_rooms import OfNamedRooms
from sublet.daemon.rooms.speaking import Speaking, may_read
from sublet.daemon.rooms.views import placed_message, shortened
from sublet.messaging.calls import message_calls
from sublet.policy.decision import Action, Subject
from sublet.protocol.errors import SubletError

NEWS_MESSAGE_KEYS: Final = ("new_ref_id", "ref_id", "watched_ref")
"""What names the message that an event is about, the nearest first."""
TELLING: Final = ("message.", "reaction.", "watch.", "moderation.", "room.member.")
"""What events that are news to an agent begin with; others say nothing, or nothing that these do not."""
_GENERAL: Final = frozenset({"cursor", "kind", "room_id"})


class NewsService(OfNamedRooms):
    """Serves the operations of ``api.room_news``.

    Args:
        gate: asks policy.
        speaking: runs operations as the caller's entity.
        finder: finds the rooms of addresses.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking, finder: RoomFinder) -> None:
        super().__init__(gate, speaking, finder)
        self._answered = Answered()

    @serves(WATCH_ROOMS)
    async def watch_rooms(self, request: WatchRooms, caller: Subject) -> RoomEvents:
        service, me = await self._speaking.service(), self._speaking.entity(caller)
        if request.acknowledge is not None:
            await service.take_up(me, request.acknowledge, request.room_id)
        found = await service.watch(me, request.since, request.wait, request.room_id)
        events = [event for event in found["events"] if may_read(self._gate, caller, event["room_id"])]
        return RoomEvents(events=events, cursor=found["cursor"], missed=found["missed"])

    @serves(FOLLOW_NEWS)
    async def follow(self, request: FollowNews, caller: Subject) -> News:
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = None if request.room is None else await self._finder.find(request.room, caller)
        if room_id is not None:
            await self._gate.ask(caller, Action.ROOM_READ, room_id)
        service, me = await self._speaking.service(), self._speaking.entity(caller)
        cursor, missed, until = request.since, False, anyio.current_time() + request.wait
        if cursor is not None and not request.peek:
            # Who asks for what comes after has received what came before.
            cursor = await self._answered.take_up(service, me, cursor, room_id)
        while True:
            left = max(0.0, until - anyio.current_time())
            found = await service.watch(me, cursor, left, room_id)
            telling = [row for row in found["events"] if self._concerns(row, caller, request.peek)]
            shown, cursor, missed = telling[:MAX_NEWS], found["cursor"], missed or found["missed"]
            if len(telling) > MAX_NEWS:
                cursor = int(shown[-1]["cursor"])
            if shown or anyio.current_time() >= until:
                events = [await self._event(row, caller) for row in shown]
                if not request.peek:
                    for answered in (*(event.cursor for event in events), cursor):
                        self._answered.note(me, answered, room_id)
                return News(events=events, cursor=cursor, more=len(telling) > MAX_NEWS, missed=missed)

    @serves(GET_NEWEST)
    async def get_newest(self, request: Nothing, caller: Subject) -> RoomCursor:
        return RoomCursor(cursor=await (await self._speaking.service()).cursor())

    @serves(LIST_WATCHES)
    async def list_watches(self, request: Nothing, caller: Subject) -> Watches:
        return await self._watches(caller)

    @serves(SET_WATCH)
    async def set_watch(self, request: SetWatch, caller: Subject) -> Watches:
        room_id = await self._written(request.room, caller)
        if request.ref_id is not None:
            flags = request.model_dump(include={"reason", "on_content_edit", "on_reply", "on_thread", "on_reaction"})
            await self._speaking.call(caller, message_calls.set_watch, room_id=room_id, ref_id=request.ref_id, **flags)
        else:
            scope = "this_room" if request.this_room_only else "all_rooms"
            await self._speaking.call(
                caller, message_calls.set_watch, room_id=room_id, channels=request.channels, scope=scope
            )
        return await self._watches(caller)

    @serves(UNSET_WATCH)
    async def unset_watch(self, request: UnsetWatch, caller: Subject) -> Watches:
        room_id = await self._written(request.room, caller)
        ended = await self._speaking.call(caller, message_calls.unset_watch, room_id=room_id, ref_id=request.ref_id)
        return (await self._watches(caller)).model_copy(update={"removed": ended["removed"]})

    async def _written(self, given: str, caller: Subject) -> str:
        """Return the room of an address, in which the caller may have a watch: all members see it there."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = await self._finder.find(given, caller)
        await self._gate.ask(caller, Action.ROOM_SEND, room_id, size_bytes=0)
        return room_id

    def _concerns(self, row: Mapping[str, Any], caller: Subject, peek: bool) -> bool:
        """Tell whether an event is news: in a room that the caller may read, of another's doing."""
        me = self._speaking.entity(caller)
        if row["kind"] == "room.member.joined" and row.get("entity") != me and not peek:
            return False  # who else is in a room stands in the directory
        doer = row.get("author") or row.get("by") or (row.get("entity") if row["kind"] == "room.member.left" else None)
        return (
            str(row["kind"]).startswith(TELLING)
            and (peek or doer != me)
            and may_read(self._gate, caller, str(row["room_id"]))
        )

    async def _event(self, row: Mapping[str, Any], caller: Subject) -> RoomEvent:
        ref_id = next((str(row[key]) for key in NEWS_MESSAGE_KEYS if key in row), None)
        message = None
        if ref_id is not None:
            try:
                ref = await self._speaking.call(caller, message_calls.get_ref, room_id=row["room_id"], ref_id=ref_id)
                placed = placed_message(ref, self._speaking.entity(caller), partial(may_read, self._gate, caller))
                message = shortened(placed, MAX_NEWS_CHARS)
            except SubletError:
                message = None  # taken out of the room since then
        about = {name: value for name, value in row.items() if name not in _GENERAL}
        return RoomEvent(cursor=row["cursor"], kind=row["kind"], room_id=row["room_id"], data=about, message=message)

    async def _watches(self, caller: Subject) -> Watches:
        found = await self._speaking.call(caller, message_calls.list_watches)
        return Watches(
            refs=[WatchedRef.model_validate(one) for one in found["refs"]],
            channels=[WatchedChannels.model_validate(one) for one in found["channels"]],
        )
