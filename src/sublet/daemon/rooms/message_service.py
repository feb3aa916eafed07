"""Serves the operations on messages of a room, and on what became of them."""

from __future__ import annotations

from functools import partial

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_messages import (
    GET_RECEIPTS,
    LIST_CHANNELS,
    LIST_THREADS,
    READ_MESSAGES,
    SEND_MESSAGE,
    AskReceipts,
    ChannelView,
    ListThreads,
    MessageReceipts,
    MessageSent,
    MessageView,
    ReadMessages,
    SendMessage,
)
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.of_rooms import OfRooms
from sublet.daemon.rooms.speaking import may_read
from sublet.daemon.rooms.views import message_view
from sublet.messaging.calls import message_calls
from sublet.policy.decision import Action, Subject


class MessageService(OfRooms):
    """Serves the operations of ``api.room_messages``."""

    @serves(SEND_MESSAGE)
    async def send_message(self, request: SendMessage, caller: Subject) -> MessageSent:
        if request.reply_room is not None:
            await self._gate.ask(caller, Action.ROOM_READ, request.reply_room)
        media: str | dict[str, str] | None = request.media
        if request.media and request.filename:
            media = {"blob_hash": request.media, "filename": request.filename}
        return MessageSent.model_validate(await self._speaking.send(caller, request.room_id, request, media))

    @serves(READ_MESSAGES)
    async def read_messages(self, request: ReadMessages, caller: Subject) -> list[MessageView]:
        page = await self._speaking.page(
            caller,
            request.room_id,
            thread=request.thread,
            channel=request.channel,
            limit=request.limit,
            before=request.before,
            peek=request.peek,
        )
        return [message_view(ref, partial(may_read, self._gate, caller)) for ref in page["refs"]]

    @serves(LIST_THREADS)
    async def list_threads(self, request: ListThreads, caller: Subject) -> list[MessageView]:
        room_id, limit, before = request.room_id, request.limit, request.before
        page = await self._speaking.call(
            caller, message_calls.list_threads, room_id=room_id, limit=limit, before=before
        )
        return [message_view(ref, partial(may_read, self._gate, caller)) for ref in page["refs"]]

    @serves(LIST_CHANNELS)
    async def list_channels(self, request: Nothing, caller: Subject) -> list[ChannelView]:
        found = await self._speaking.call(caller, message_calls.list_channels)
        return [ChannelView.model_validate(one) for one in found]

    @serves(GET_RECEIPTS)
    async def get_receipts(self, request: AskReceipts, caller: Subject) -> MessageReceipts:
        return await self._speaking.receipts(caller, request.room_id, request.ref_id, request.until, request.wait)
