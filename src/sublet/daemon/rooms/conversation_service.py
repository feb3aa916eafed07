"""Serves the operations on conversations: talking by address, for agents that know no ids yet.

Each asks first whether the caller may read rooms at all, before anything is looked up, so that who may speak nowhere
learns of nothing; then about the room, once it is known.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from sublet.daemon.api.conversations import (
    GET_CONVERSATION,
    INVITE,
    LIST_CONVERSATIONS,
    REACH,
    READ_CONVERSATION,
    READ_MESSAGE,
    SAY,
    SEARCH_MESSAGES,
    Conversation,
    ConversationMessage,
    ConversationPage,
    FoundMessages,
    Invite,
    MessageDelivery,
    Reach,
    Reached,
    ReadConversation,
    Say,
    SearchMessages,
    WhichConversation,
    WhichMessage,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_people import FIND_PROFILE, NamedProfile, ProfileView
from sublet.daemon.api.rooms import RoomChange
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.of_rooms import OfNamedRooms
from sublet.daemon.rooms.speaking import may_read
from sublet.daemon.rooms.views import conversation_of, in_order, placed_message
from sublet.messaging.calls import message_calls, people_calls, room_calls
from sublet.policy.decision import Action, Subject
from sublet.protocol.ezagent.ids import RoomId

RECEIPT_SECONDS: Final = 1.0
"""How long an answer waits for the message to be delivered."""


class ConversationService(OfNamedRooms):
    """Serves the operations of ``api.conversations``."""

    @serves(REACH)
    async def reach(self, request: Reach, caller: Subject) -> Reached:
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        open_for = 0 if request.open else None
        return Reached(room_id=await self._finder.find(request.to, caller, open_for))

    @serves(SAY)
    async def say(self, request: Say, caller: Subject) -> MessageDelivery:
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = await self._finder.find(request.to, caller, request.size_bytes)
        await self._gate.ask(caller, Action.ROOM_SEND, room_id, size_bytes=request.size_bytes)
        if request.reply_room is not None:
            request = request.model_copy(update={"reply_room": await self._readable(request.reply_room, caller)})
        files = [one if one.startswith("sha256:") else f"sha256:{one}" for one in request.attachments]
        # A message comes with one file (EXT-10); further ones are named by its content.
        sent = await self._speaking.send(caller, room_id, request, files[0] if files else None, files)
        receipts = await self._speaking.receipts(caller, room_id, sent["ref_id"], "delivered", RECEIPT_SECONDS)
        return MessageDelivery(
            room_id=room_id,
            ref_id=sent["ref_id"],
            created_at=sent["created_at"],
            author=self._speaking.entity(caller),
            receipt=receipts.receipt,
            recipients=receipts.recipients,
        )

    @serves(READ_CONVERSATION)
    async def read_conversation(self, request: ReadConversation, caller: Subject) -> ConversationPage:
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = None if request.room is None else await self._readable(request.room, caller)
        page = await self._speaking.page(
            caller,
            room_id,
            thread=request.thread,
            channel=request.channel,
            limit=request.limit,
            before=request.before,
        )
        me = self._speaking.entity(caller)
        shown = [
            placed_message(ref, me, partial(may_read, self._gate, caller))
            for ref in page["refs"]
            if room_id is not None or may_read(self._gate, caller, ref["room_id"])
        ]
        return ConversationPage(room_id=room_id, messages=shown, next_cursor=page["next_cursor"])

    @serves(READ_MESSAGE)
    async def read_message(self, request: WhichMessage, caller: Subject) -> ConversationMessage:
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = await self._readable(request.room, caller)
        ref = await self._speaking.call(caller, message_calls.get_ref, room_id=room_id, ref_id=request.ref_id)
        message = placed_message(ref, self._speaking.entity(caller), partial(may_read, self._gate, caller))
        if not message.own:
            return message
        receipts = await self._speaking.receipts(caller, room_id, request.ref_id, None, 0)
        return message.model_copy(update={"receipts": receipts.recipients})

    @serves(LIST_CONVERSATIONS)
    async def list_conversations(self, request: Nothing, caller: Subject) -> list[Conversation]:
        found = [
            await self._shown(room["room_id"], caller)
            for room in await self._speaking.call(caller, room_calls.list_rooms)
            if may_read(self._gate, caller, room["room_id"])
        ]
        return sorted(in_order(found), key=lambda room: not room.unread)

    @serves(GET_CONVERSATION)
    async def get_conversation(self, request: WhichConversation, caller: Subject) -> Conversation:
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        return await self._shown(await self._readable(request.room, caller), caller)

    @serves(SEARCH_MESSAGES)
    async def search_messages(self, request: SearchMessages, caller: Subject) -> FoundMessages:
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        if request.room is not None:
            rooms = [await self._readable(request.room, caller)]
        else:
            known = await self._speaking.call(caller, room_calls.list_rooms)
            rooms = [room["room_id"] for room in known if may_read(self._gate, caller, room["room_id"])]
        found = await self._speaking.call(
            caller,
            message_calls.search_messages,
            query=request.query,
            rooms=rooms,
            limit=request.limit,
            before=request.before,
        )
        me = self._speaking.entity(caller)
        messages = [placed_message(ref, me, partial(may_read, self._gate, caller)) for ref in found["refs"]]
        return FoundMessages(messages=messages, next_cursor=found["next_cursor"], complete=found["complete"])

    @serves(FIND_PROFILE)
    async def find_profile(self, request: NamedProfile, caller: Subject) -> ProfileView:
        entity = None if request.entity is None else self._finder.entity(request.entity)
        return ProfileView.model_validate(await self._speaking.call(caller, people_calls.get_profile, entity=entity))

    @serves(INVITE)
    async def invite(self, request: Invite, caller: Subject) -> RoomChange:
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        room_id = await self._readable(request.room, caller)
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        entity = self._finder.entity(request.entity)
        await self._finder.require_known(entity, caller)
        await self._speaking.call(caller, room_calls.invite, room_id=room_id, entity=entity)
        return await self._speaking.room_change(caller, room_id, entity)

    async def _readable(self, given: str, caller: Subject) -> RoomId:
        """Return the room of an address, which the caller may read."""
        room_id = await self._finder.find(given, caller)
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        return room_id

    async def _shown(self, room_id: RoomId, caller: Subject) -> Conversation:
        found = await self._speaking.call(caller, room_calls.get, room_id=room_id)
        receipts = await self._speaking.call(caller, people_calls.get_reading, room_id=room_id)
        return conversation_of(found, self._speaking.entity(caller), receipts["unread"])
