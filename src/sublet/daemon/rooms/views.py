"""Rooms and messages as faces are shown them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from sublet.daemon.api.conversations import Conversation, ConversationMessage
from sublet.daemon.api.room_fields import MEDIA_TYPE
from sublet.daemon.api.room_messages import MessageReceipts, MessageView, RecipientReceipt
from sublet.daemon.api.rooms import RoomDetail, RoomView
from sublet.daemon.rooms.addressing import direct_with
from sublet.daemon.rooms.entities import is_daemon
from sublet.daemon.rooms.lent_rooms import CLOSED_LEVEL, is_closed
from sublet.messaging.calls.message_calls import Ref
from sublet.messaging.calls.room_calls import RoomFound, RoomSummary
from sublet.protocol.ezagent.content import FORMATS
from sublet.protocol.ezagent.ids import EntityId, RoomId, is_entity_id

if TYPE_CHECKING:
    from sublet.messaging.delivery.receipts import MessageReceipts as Receipts

RoomViewT = TypeVar("RoomViewT", bound=RoomView)

MayRead: TypeAlias = Callable[[RoomId], bool]
"""Whether policy lets the reader of a message read a room that it quotes."""

_EXT: Final = "ext."
_PREVIEW: Final = "reply_preview"
_KNOCKS: Final = "membership.knocks."
_SHOWN: Final = frozenset({"ref_id", "author", "body", "status", "created_at"})
_INNER: Final = frozenset({"content_type", "content_id", "content", "signature", "shard_id", "room_id"})
"""What only the engine needs."""


def room_views(found: Iterable[RoomSummary]) -> list[RoomView]:
    """Return rooms as they are listed: the newest activity first, those of delegations and closed ones apart."""
    return in_order([RoomView.model_validate({**room, **_standing(room)}) for room in found])


def in_order(rooms: Iterable[RoomViewT]) -> list[RoomViewT]:
    """Return rooms in the order in which they are listed."""
    newest_first = sorted(rooms, key=lambda room: (room.last_activity, room.room_id), reverse=True)
    return sorted(newest_first, key=lambda room: (room.closed, room.kind == "delegation"))


def _standing(room: RoomSummary | RoomFound) -> dict[str, Any]:
    """Return what kind of room it is, and whether it is closed."""
    creator = room["created_by"]
    by_daemon = is_entity_id(creator) and is_daemon(creator)
    return {"kind": "delegation" if by_daemon else "talk", "closed": room["write_level"] >= CLOSED_LEVEL}


def detail_of(found: RoomFound) -> RoomDetail:
    """Return a room, as ``room.get`` answers, with its members and who knocks."""
    return RoomDetail.model_validate(_detail(found))


def conversation_of(found: RoomFound, me: EntityId, unread: int) -> Conversation:
    """Return a room, as ``room.get`` answers, with how much ``me`` has not read of it, and whom it is with."""
    other = direct_with(found, me)
    alone = other is not None and set(found["members"]) == {me, other}
    # Nobody can leave a receipt in a room that is closed.
    more = {"unread": 0 if is_closed(found["config"]) else unread, "direct_with": other if alone else None}
    return Conversation.model_validate({**_detail(found), **more})


def _detail(found: RoomFound) -> dict[str, Any]:
    roles = {entity: member["role"] for entity, member in found["members"].items()}
    powers = {entity: member["power"] for entity, member in found["members"].items()}
    knocks: dict[str, str] = {}
    for name, value in found["config"].items():
        if name.startswith(_KNOCKS) and isinstance(value, dict):
            knocks[name.removeprefix(_KNOCKS)] = str(value.get("text", ""))
    config = {name: value for name, value in found["config"].items() if not name.startswith(_KNOCKS)}
    changed = {"members": len(roles), "roles": roles, "powers": powers, "knocks": knocks, "config": config}
    return {**found, **_standing(found), **changed}


def message_view(ref: Ref, may: MayRead) -> MessageView:
    """Return a ref, as the engine shows it, as a message; what hooks have added stands in ``about``."""
    return MessageView.model_validate(_message(ref, may))


def placed_message(ref: Ref, me: EntityId, may: MayRead) -> ConversationMessage:
    """Return a ref, as the engine shows it, as a message that says where it stands and whether it is ``me``'s."""
    content = ref.get("content")
    named = content.get("media_refs") if isinstance(content, dict) else None
    files = [str(one) for one in named] if isinstance(named, list) else []
    media = ref.get(f"{_EXT}media")
    one = media.get("blob_hash") if isinstance(media, dict) else None
    if isinstance(one, str) and one not in files:
        files.insert(0, one)
    placed = {"room_id": ref["room_id"], "own": ref["author"] == me, "attachments": files}
    return ConversationMessage.model_validate({**_message(ref, may), **placed})


def shortened(message: ConversationMessage, limit: int) -> ConversationMessage:
    """Return a message with no more than the beginning of its body."""
    body = message.body
    if body is None or len(body) <= limit:
        return message
    cut = f"{body[:limit]}… [{len(body) - limit} more characters; read_messages has them]"
    return message.model_copy(update={"body": cut})


def receipts_view(found: Receipts) -> MessageReceipts:
    """Return how far a message has come, to each recipient."""
    return MessageReceipts(
        ref_id=found.ref_id,
        room_id=found.room_id,
        created_at=found.created_at,
        receipt=found.receipt.value,
        purged=found.purged,
        recipients=[
            RecipientReceipt(entity=one.entity, receipt=one.receipt.value, reason=one.reason)
            for one in found.recipients
        ],
    )


def _format(content: object) -> str:
    """Return how a text is meant, by its content; plain where that is not told, or something nobody knows."""
    told = content.get("format") if isinstance(content, dict) else None
    return told.removeprefix(MEDIA_TYPE) if isinstance(told, str) and told in FORMATS else FORMATS[0][len(MEDIA_TYPE) :]


def _quote(value: Any, may: MayRead) -> Any:
    """Return what a message answers in another room, as far as policy lets its reader read that room."""
    hidden = isinstance(value, dict) and value.get("accessible") is True and not may(str(value.get("room_id")))
    return {"accessible": False} if hidden else value


def _message(ref: Ref, may: MayRead) -> dict[str, Any]:
    return {
        "ref_id": ref["ref_id"],
        "author": ref["author"],
        "body": ref.get("body"),
        "status": ref["status"],
        "created_at": ref["created_at"],
        "format": _format(ref.get("content")),
        "ext": {name.removeprefix(_EXT): value for name, value in ref.items() if name.startswith(_EXT)},
        "about": {
            name: _quote(value, may) if name == _PREVIEW else value
            for name, value in ref.items()
            if not name.startswith(_EXT) and name not in _SHOWN and name not in _INNER
        },
    }
