"""Serves the operations on messages that are there."""

from __future__ import annotations

from functools import partial
from typing import Final

from sublet.daemon.api.room_fields import MEDIA_TYPE, OneMessage
from sublet.daemon.api.room_marks import (
    ADD_REACTION,
    DELETE_MESSAGE,
    EDIT_MESSAGE,
    GET_MESSAGE,
    LIST_VERSIONS,
    MODERATE_MESSAGE,
    PURGE_MESSAGE,
    REMOVE_REACTION,
    DeleteMessage,
    EditMessage,
    MessageChange,
    MessagePurged,
    MessageVersion,
    Moderate,
    PurgeMessage,
    React,
)
from sublet.daemon.api.room_messages import MessageView
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.of_rooms import OfRooms
from sublet.daemon.rooms.speaking import may_read
from sublet.daemon.rooms.views import message_view
from sublet.messaging.calls import message_calls
from sublet.policy.decision import Subject

DECISIONS: Final = {"redact": message_calls.redact, "pin": message_calls.pin, "unpin": message_calls.unpin}


class RoomMarkService(OfRooms):
    """Serves the operations of ``api.room_marks``."""

    @serves(GET_MESSAGE)
    async def get_message(self, request: OneMessage, caller: Subject) -> MessageView:
        ref = await self._speaking.call(caller, message_calls.get_ref, **_message(request))
        return message_view(ref, partial(may_read, self._gate, caller))

    @serves(ADD_REACTION)
    async def add_reaction(self, request: React, caller: Subject) -> MessageChange:
        done = await self._speaking.call(caller, message_calls.add_reaction, **_message(request), emoji=request.emoji)
        return _changed(request, done["added"])

    @serves(REMOVE_REACTION)
    async def remove_reaction(self, request: React, caller: Subject) -> MessageChange:
        done = await self._speaking.call(
            caller, message_calls.remove_reaction, **_message(request), emoji=request.emoji
        )
        return _changed(request, done["removed"])

    @serves(EDIT_MESSAGE)
    async def edit_message(self, request: EditMessage, caller: Subject) -> MessageChange:
        form = None if request.format is None else f"{MEDIA_TYPE}{request.format}"
        await self._speaking.call(caller, message_calls.edit, **_message(request), body=request.body, format=form)
        return _changed(request, True)

    @serves(LIST_VERSIONS)
    async def list_versions(self, request: OneMessage, caller: Subject) -> list[MessageVersion]:
        versions = await self._speaking.call(caller, message_calls.list_versions, **_message(request))
        return [MessageVersion(body=version["body_snapshot"], at=version["edited_at"]) for version in versions]

    @serves(DELETE_MESSAGE)
    async def delete_message(self, request: DeleteMessage, caller: Subject) -> MessageChange:
        done = await self._speaking.call(caller, message_calls.delete, **_message(request))
        return _changed(request, done["deleted"])

    @serves(MODERATE_MESSAGE)
    async def moderate_message(self, request: Moderate, caller: Subject) -> MessageChange:
        decision = DECISIONS[request.action]
        done = await self._speaking.call(caller, decision, **_message(request), reason=request.reason)
        return _changed(request, done["changed"])

    @serves(PURGE_MESSAGE)
    async def purge_message(self, request: PurgeMessage, caller: Subject) -> MessagePurged:
        done = await self._speaking.call(caller, message_calls.purge, **_message(request), files=request.files)
        return MessagePurged(**_message(request), changed=done["changed"], kept_files=done["kept_files"])


def _message(request: OneMessage) -> dict[str, str]:
    return {"room_id": request.room_id, "ref_id": request.ref_id}


def _changed(request: OneMessage, changed: bool) -> MessageChange:
    return MessageChange(room_id=request.room_id, ref_id=request.ref_id, changed=changed)
