"""Operations of the engine by the names that histories know, done over the control API of a real daemon."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sublet.daemon.api.invitations import ACCEPT_INVITATION, DECLINE_INVITATION, LIST_INVITATIONS
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_fields import OneMessage, OneRoom
from sublet.daemon.api.room_files import UPLOAD_FILE, UploadFile
from sublet.daemon.api.room_marks import (
    ADD_REACTION,
    DELETE_MESSAGE,
    EDIT_MESSAGE,
    MODERATE_MESSAGE,
    PURGE_MESSAGE,
    REMOVE_REACTION,
    DeleteMessage,
    EditMessage,
    Moderate,
    PurgeMessage,
    React,
)
from sublet.daemon.api.room_members import CONFIGURE_ROOM, KICK_MEMBER, ConfigureRoom, RemoveMember
from sublet.daemon.api.room_messages import (
    LIST_CHANNELS,
    READ_MESSAGES,
    SEND_MESSAGE,
    MessageView,
    ReadMessages,
    SendMessage,
)
from sublet.daemon.api.room_people import (
    GET_PROFILE,
    GET_READING,
    MARK_READ,
    UPDATE_PROFILE,
    FindProfile,
    MarkRead,
    UpdateProfile,
)
from sublet.daemon.api.room_texts import EDIT_TEXT, GET_TEXT, SHARE_TEXT, EditText, ShareText, TextEdit
from sublet.daemon.api.rooms import (
    CREATE_ROOM,
    GET_ROOM,
    INVITE_TO_ROOM,
    LEAVE_ROOM,
    LIST_ROOMS,
    CreateRoom,
    InviteToRoom,
)
from sublet.daemon.control.client import ControlClient
from support.histories.stage import NotRunning


async def by_control(client: ControlClient, operation: str, arguments: dict[str, Any]) -> Any:
    """Return what an operation answers, in the form of the engine's own.

    Raises:
        SubletError: it is refused.
        NotRunning: the control API has no such operation.
    """
    done = _DONE.get(operation)
    if done is None:
        raise NotRunning
    return await done(client, **arguments)


async def _create(client: ControlClient, name: str, invite: list[str]) -> Any:
    made = await client.call(CREATE_ROOM, CreateRoom(name=name))
    for entity in invite:
        await client.call(INVITE_TO_ROOM, InviteToRoom(room_id=made.room_id, entity=entity))
    return {"room_id": made.room_id}


async def _list(client: ControlClient) -> Any:
    return [{"room_id": room.room_id} for room in await client.call(LIST_ROOMS, Nothing())]


async def _get(client: ControlClient, room_id: str) -> Any:
    found = await client.call(GET_ROOM, OneRoom(room_id=room_id))
    members = {one: {"role": role, "power": found.powers.get(one)} for one, role in found.roles.items()}
    return {"name": found.name, "members": members, "config": found.config}


async def _invitations(client: ControlClient) -> Any:
    found = await client.call(LIST_INVITATIONS, Nothing())
    return [{"room_id": one.room_id, "name": one.name, "members": one.members, "answer": one.answer} for one in found]


async def _accept(client: ControlClient, room_id: str) -> Any:
    return await client.call(ACCEPT_INVITATION, OneRoom(room_id=room_id))


async def _decline(client: ControlClient, room_id: str) -> Any:
    return await client.call(DECLINE_INVITATION, OneRoom(room_id=room_id))


async def _page(client: ControlClient, room_id: str, limit: int, before: str | None, peek: bool) -> Any:
    page = await client.call(READ_MESSAGES, ReadMessages(room_id=room_id, limit=limit, before=before, peek=peek))
    return {"refs": [_ref(one) for one in page], "next_cursor": page[0].ref_id if len(page) == limit else None}


def _ref(view: MessageView) -> dict[str, Any]:
    told = view.model_dump(exclude={"ext", "about"})
    return told | {f"ext.{name}": value for name, value in view.ext.items()} | view.about


async def _purge(client: ControlClient, room_id: str, ref_id: str) -> Any:
    return await client.call(PURGE_MESSAGE, PurgeMessage(room_id=room_id, ref_id=ref_id))


async def _channels(client: ControlClient) -> Any:
    return await client.call(LIST_CHANNELS, Nothing())


async def _send(client: ControlClient, room_id: str, body: str, ext: dict[str, Any] | None) -> Any:
    ext = ext or {}
    said = SendMessage(
        room_id=room_id,
        body=body,
        reply_to=ext.get("reply_to"),
        thread=ext.get("thread"),
        channels=ext.get("channels", []),
        media=ext.get("media"),
    )
    return {"ref_id": (await client.call(SEND_MESSAGE, said)).ref_id}


async def _edit(client: ControlClient, room_id: str, ref_id: str, body: str) -> Any:
    return await client.call(EDIT_MESSAGE, EditMessage(room_id=room_id, ref_id=ref_id, body=body))


async def _delete(client: ControlClient, room_id: str, ref_id: str) -> Any:
    return await client.call(DELETE_MESSAGE, DeleteMessage(room_id=room_id, ref_id=ref_id))


def _moderate(action: Any) -> Callable[..., Awaitable[Any]]:
    async def moderate(client: ControlClient, room_id: str, ref_id: str) -> Any:
        return await client.call(MODERATE_MESSAGE, Moderate(room_id=room_id, ref_id=ref_id, action=action))

    return moderate


async def _react(client: ControlClient, room_id: str, ref_id: str, emoji: str) -> Any:
    return await client.call(ADD_REACTION, React(room_id=room_id, ref_id=ref_id, emoji=emoji))


async def _unreact(client: ControlClient, room_id: str, ref_id: str, emoji: str) -> Any:
    return await client.call(REMOVE_REACTION, React(room_id=room_id, ref_id=ref_id, emoji=emoji))


async def _share(client: ControlClient, room_id: str, ref_id: str, mode: Any) -> Any:
    return await client.call(SHARE_TEXT, ShareText(room_id=room_id, ref_id=ref_id, mode=mode))


async def _text(client: ControlClient, room_id: str, ref_id: str) -> Any:
    return {"text": (await client.call(GET_TEXT, OneMessage(room_id=room_id, ref_id=ref_id))).text}


async def _write(
    client: ControlClient, room_id: str, ref_id: str, index: int, delete: int = 0, insert: str = ""
) -> Any:
    base = (await client.call(GET_TEXT, OneMessage(room_id=room_id, ref_id=ref_id))).text
    edits = [TextEdit(index=index, delete=delete, insert=insert)]
    return await client.call(EDIT_TEXT, EditText(room_id=room_id, ref_id=ref_id, base=base, edits=edits))


async def _configure(client: ControlClient, room_id: str, changes: dict[str, Any]) -> Any:
    fields = {name: value for name, value in changes.items() if name != "name"}
    return await client.call(CONFIGURE_ROOM, ConfigureRoom(room_id=room_id, name=changes.get("name"), fields=fields))


async def _invite(client: ControlClient, room_id: str, entity: str) -> Any:
    return await client.call(INVITE_TO_ROOM, InviteToRoom(room_id=room_id, entity=entity))


async def _leave(client: ControlClient, room_id: str) -> Any:
    return await client.call(LEAVE_ROOM, OneRoom(room_id=room_id))


async def _kick(client: ControlClient, room_id: str, entity: str) -> Any:
    return await client.call(KICK_MEMBER, RemoveMember(room_id=room_id, entity=entity))


async def _power(client: ControlClient, room_id: str, entity: str, level: int) -> Any:
    return await client.call(CONFIGURE_ROOM, ConfigureRoom(room_id=room_id, powers={entity: level}))


async def _upload(client: ControlClient, room_id: str, data: bytes, media_type: str, filename: str) -> Any:
    file = UploadFile(room_id=room_id, filename=filename, media_type=media_type, data=base64.b64encode(data))
    return {"blob_hash": (await client.call(UPLOAD_FILE, file)).blob_hash}


async def _mark(client: ControlClient, room_id: str, ref_id: str) -> Any:
    return await client.call(MARK_READ, MarkRead(room_id=room_id, ref_id=ref_id))


async def _reading(client: ControlClient, room_id: str) -> Any:
    return {"readers": (await client.call(GET_READING, OneRoom(room_id=room_id))).readers}


async def _profile(client: ControlClient, entity: str) -> Any:
    return {"body": (await client.call(GET_PROFILE, FindProfile(entity=entity))).body}


async def _tell_profile(client: ControlClient, body: str) -> Any:
    return await client.call(UPDATE_PROFILE, UpdateProfile(body=body))


_DONE: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "room.create": _create,
    "room.list": _list,
    "room.get": _get,
    "invitations.list": _invitations,
    "invitations.accept": _accept,
    "invitations.decline": _decline,
    "timeline.list": _page,
    "channels.list": _channels,
    "message.send": _send,
    "mutable.update": _edit,
    "message.delete": _delete,
    "purge.message": _purge,
    "moderation.redact": _moderate("redact"),
    "moderation.pin": _moderate("pin"),
    "moderation.unpin": _moderate("unpin"),
    "reactions.add": _react,
    "reactions.remove": _unreact,
    "collab.update_acl": _share,
    "collab.connect": _text,
    "collab.edit": _write,
    "room.update_config": _configure,
    "room.invite": _invite,
    "room.leave": _leave,
    "room.kick": _kick,
    "room.set_power": _power,
    "media.upload": _upload,
    "receipts.update": _mark,
    "receipts.summary": _reading,
    "profile.get": _profile,
    "profile.update": _tell_profile,
}
