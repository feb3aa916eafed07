"""EXT-09 Presence and awareness: who is there, who is typing, and what they say of themselves in passing."""

from __future__ import annotations

from typing import Final

from sublet.messaging.calls import people_calls as calls
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import (
    AfterWriteHook,
    Declaration,
    Hooks,
    Index,
    Operation,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.passing.ephemeral import Passing
from sublet.messaging.schema.changes import Happened
from sublet.messaging.schema.datatypes import QOS_LOW, Annotation, AnnotationPlace, Change, Datatype, Origin
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.times import rfc3339_of_ms

PRESENCE: Final = "presence"
TYPING_MS: Final = 10_000
"""After which whoever has not said again that they are typing has stopped."""
REFRESH_MS: Final = 3_000
"""How soon the same is said again."""
MAX_STATUS_CHARS: Final = 200
MAX_WINDOW_CHARS: Final = 100
EXPIRY_SECONDS: Final = 5.0


def _emit_presence(context: AfterWrite) -> None:
    kind = "presence.left" if context.change.event is Change.DELETE else "presence.joined"
    context.emit(kind, {"entity": context.change.signer})


def _typing_changed(change: Happened) -> bool:
    before = change.value if isinstance(change.value, dict) else {}
    return bool(before.get("typing")) != bool(change.fields.get("typing"))


def _emit_typing(context: AfterWrite) -> None:
    kind = "typing.start" if context.change.fields.get("typing") else "typing.stop"
    context.emit(kind, {"entity": context.change.signer})


def _set(
    context: OperationContext,
    room_id: RoomId,
    status: str | None = None,
    typing: bool | None = None,
    window: str | None = None,
) -> calls.PresenceSaid:
    """Tell a room in passing what the caller is about.

    Args:
        context: who asks.
        room_id: the room.
        status: a line such as "back at three"; an empty one takes it away, None leaves it.
        typing: whether a message is being written; to be said again every few seconds while that is so.
        window: which part of the room is looked at, such as ``thread:REF``.

    Returns:
        ``said``: whether it was worth saying; the same again is not, for some seconds.

    Raises:
        SubletError: ``NOT_FOUND``; ``CONFLICT``: the room does not offer this; ``INVALID_ARGUMENT``: too long.
    """
    engine, entity = context.parts, context.entity
    if len(status or "") > MAX_STATUS_CHARS or len(window or "") > MAX_WINDOW_CHARS:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"a status has at most {MAX_STATUS_CHARS} characters", "Send a message."
        )
    said, now = engine.ephemeral.said(room_id, entity), engine.now_ms()
    before = dict(said.value) if said is not None else {}
    value: dict[str, JsonValue] = {"entity_id": entity, "last_active": rfc3339_of_ms(now)}
    value["typing"] = bool(before.get("typing")) if typing is None else typing
    for name, given in (("custom_status", status), ("active_window", window)):
        kept = before.get(name) if given is None else given
        if kept:
            value[name] = kept
    same = {key: one for key, one in before.items() if key != "last_active"} == {
        key: one for key, one in value.items() if key != "last_active"
    }
    if same and said is not None and now - said.came_ms < REFRESH_MS:
        return {"said": False}
    engine.ephemeral.say(entity, room_id, value)
    return {"said": True}


def _list(context: OperationContext, room_id: RoomId) -> list[calls.PresenceFound]:
    """Return the members who are there, each with what they say of themselves."""
    engine, state = context.parts, context.state(room_id)
    present = [entity for entity in state.members() if engine.ephemeral.is_present(room_id, entity)]
    return [_view(entity, engine.ephemeral.said(room_id, entity), engine.now_ms()) for entity in sorted(present)]


def _view(entity: EntityId, said: Passing | None, now_ms: int) -> calls.PresenceFound:
    value = said.value if said is not None else {}
    return {
        "entity": entity,
        "typing": said is not None and _is_typing(said, now_ms),
        "status": _line(value.get("custom_status"), MAX_STATUS_CHARS),
        "window": _line(value.get("active_window"), MAX_WINDOW_CHARS),
        "last_active": _line(value.get("last_active"), 40),
    }


def _line(value: object, limit: int) -> str | None:
    return value[:limit] if isinstance(value, str) else None


def _is_typing(said: Passing, now_ms: int) -> bool:
    return bool(said.value.get("typing")) and now_ms - said.came_ms < TYPING_MS


def _expire(context: OperationContext) -> None:
    """Let those have stopped who have not said for a while that they are typing."""
    engine = context.parts
    for room_id, entity, said in engine.ephemeral.all():
        if said.value.get("typing") and not _is_typing(said, engine.now_ms()):
            engine.ephemeral.replace(room_id, entity, {**said.value, "typing": False})


def _ephemeral(id: str, name: str) -> Datatype:
    return Datatype(
        id=id,
        storage_type=StorageType.EPHEMERAL,
        key_pattern=f"ezagent/{{room_id}}/ephemeral/{name}/@{{entity_id}}",
        persistent=False,
        writer_rule="signer == entity_id in key",
        qos=QOS_LOW,
    )


PRESENCES: Final = Declaration(
    id=PRESENCE,
    version="0.1.0",
    dependencies=("room",),
    origin=Origin.STANDARD,
    datatypes=(_ephemeral("presence_token", "presence"), _ephemeral("awareness_state", "awareness")),
    hooks=Hooks(
        after_write=(
            AfterWriteHook("presence.online_change", Trigger("presence_token", Change.ANY), 40, _emit_presence),
            AfterWriteHook(
                "presence.typing_change",
                Trigger("awareness_state", Change.UPDATE, "typing changed", _typing_changed),
                40,
                _emit_typing,
            ),
        ),
    ),
    annotations=(
        Annotation(
            AnnotationPlace.EPHEMERAL,
            "awareness_payload",
            "{ entity_id, typing, active_window, custom_status, last_active }",
            writer_rule="signer == entity_id in key",
        ),
    ),
    indexes=(
        Index(
            id="online_users",
            input="presence_token for room/{room_id}",
            transform="room_id -> list of online entity_ids",
            refresh=Refresh.ON_CHANGE,
            operation_id=calls.list_presence.id,
            read=calls.list_presence.by(_list),
        ),
        Index(
            id="typing_expiry",
            input="awareness_state",
            transform="typing that was not said again -> stopped",
            refresh=Refresh.PERIODIC,
            rebuild=_expire,
            every_seconds=EXPIRY_SECONDS,
        ),
    ),
    operations=(Operation(calls.set_presence.id, calls.set_presence.by(_set), writes="awareness_state"),),
    events=("presence.joined", "presence.left", "typing.start", "typing.stop"),
)
