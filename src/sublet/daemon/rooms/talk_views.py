"""Messages and events as agents are shown them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from sublet.daemon.api.delivery_models import RecipientReceipt
from sublet.daemon.api.talk_models import TalkFile, TalkMessage
from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent.ids import EntityId

if TYPE_CHECKING:
    from sublet.messaging.delivery.receipts import MessageReceipts

_EXT: Final = "ext."
_APART: Final = frozenset({"reply_to", "thread", "channels", "media"})
"""What extensions keep on a message and the view has fields for."""
_GENERAL: Final = frozenset({"cursor", "kind", "room_id"})


def message_of(ref: Mapping[str, Any], me: EntityId) -> TalkMessage:
    """Return a ref, as the engine shows it, as a message."""
    ext = {name.removeprefix(_EXT): value for name, value in ref.items() if name.startswith(_EXT)}
    answered, thread, channels = ext.get("reply_to"), ext.get("thread"), ext.get("channels")
    content = ref.get("content")
    media = content.get("media_refs") if isinstance(content, dict) else None
    files = [str(one) for one in media] if isinstance(media, list) else []
    if (one := _text(ext.get("media"), "blob_hash")) is not None and one not in files:
        files.insert(0, one)
    return TalkMessage(
        room_id=ref["room_id"],
        ref_id=ref["ref_id"],
        author=ref["author"],
        own=ref["author"] == me,
        body=ref.get("body"),
        status=ref["status"],
        created_at=ref["created_at"],
        reply_to=_text(answered, "ref_id"),
        thread=_text(thread, "root"),
        channels=[str(name) for name in channels] if isinstance(channels, list) else [],
        attachments=files,
        file=_file(ext.get("media")),
        ext={name: value for name, value in ext.items() if name not in _APART and value not in ({}, None)},
    )


def _file(media: object) -> TalkFile | None:
    """Return what a message says of its file; None where it says it in another shape."""
    try:
        return TalkFile.model_validate(media) if isinstance(media, dict) else None
    except ValidationError:
        return None


def shortened(message: TalkMessage, limit: int) -> TalkMessage:
    """Return a message with no more than the beginning of its body."""
    body = message.body
    if body is None or len(body) <= limit:
        return message
    cut = f"{body[:limit]}… [{len(body) - limit} more characters; read_messages has them]"
    return message.model_copy(update={"body": cut})


def about(row: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return what an event says beyond its kind and room."""
    return {name: value for name, value in row.items() if name not in _GENERAL}


def _text(value: object, key: str) -> str | None:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def receipts_of(found: MessageReceipts) -> list[RecipientReceipt]:
    """Return how far a message has come to each recipient."""
    return [
        RecipientReceipt(entity=one.entity, receipt=one.receipt.value, reason=one.reason) for one in found.recipients
    ]
