"""What can be done with rooms: each as one or a few writes to the config, which every peer checks by the same table."""

from __future__ import annotations

import os
from typing import Final

from sublet.messaging.builtins.config_values import (
    ENCRYPTION,
    WINDOW,
    check_extensions,
    check_value,
    config_field,
    level_asked,
)
from sublet.messaging.calls import room_calls as calls
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.opening.shards import DEFAULT_REFS_PER_MONTH
from sublet.messaging.rooms.standing import invited
from sublet.messaging.schema.datatypes import AnnotationPlace, Origin
from sublet.messaging.schema.fields import Fields, Written
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import ROOM_SALT_BYTES, EntityId, RoomId, created_ms, is_entity_id, ref_ms
from sublet.protocol.ezagent.ids import room_id as new_room_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.room.seen import seen_value
from sublet.protocol.ezagent.room.state import DEFAULT_ADMIN_LEVEL, Policy, Role, RoomState
from sublet.protocol.ezagent.room.statements import KNOCKS, MEMBERS, NESTED_MAP, USERS
from sublet.protocol.ezagent.room.table import MAX_NAME_CHARS, level_of
from sublet.protocol.ezagent.sealing.levels import strongest
from sublet.protocol.ezagent.yjs.encode import Nested, Transaction
from sublet.protocol.ezagent.yjs.update import Value
from sublet.protocol.times import rfc3339_of_ms

MAX_KNOCK_CHARS: Final = 500


def create(
    context: OperationContext,
    name: str,
    policy: str = "invite",
    invite: list[EntityId] | None = None,
    extensions: list[str] | None = None,
    seed: tuple[int, bytes] | None = None,
    encryption: str = ENCRYPTION,
) -> calls.RoomOpened:
    """Open a room.

    Args:
        context: who asks; becomes the owner.
        name: from 1 to ``MAX_NAME_CHARS`` characters.
        policy: how others become members: ``open``, ``knock`` or ``invite``.
        invite: who is a member from the start.
        extensions: which are enabled; by default all that this daemon knows, third parties' included.
        seed: the time (Unix milliseconds) and salt from which its id was made before; new ones by default.
        encryption: from whom what is said there is hidden: ``transport_only`` or ``members``.
    """
    engine, creator = context.parts, context.entity
    if not 0 < len(name) <= MAX_NAME_CHARS or policy not in {item.value for item in Policy}:
        raise _wrong("a room has a name of at most 256 characters and a policy of open, knock or invite")
    level = level_asked(encryption)
    members = [_entity(entity) for entity in invite or []]
    enabled = extensions if extensions is not None else _extensions(context)
    check_extensions(_known(context), frozenset(), [*enabled])
    now, salt = seed if seed is not None else (engine.now_ms(), os.urandom(ROOM_SALT_BYTES))
    room = new_room_id(creator, now, salt)
    fields: dict[str, Value | Nested] = {
        "room_id": room,
        "created_by": creator,
        "salt": salt.hex(),
        "created_at": rfc3339_of_ms(now),
        "name": name,
        "membership": Nested(
            policy=policy,
            members=Nested({**dict.fromkeys(members, "member"), creator: "owner"}),
            knocks=Nested(),
        ),
        "power_levels": Nested(default=0, events_default=0, admin=DEFAULT_ADMIN_LEVEL, users=Nested()),
        "relays": [],
        "encryption": level.value,
        "timeline": {"window_size": WINDOW, "max_refs_per_window": DEFAULT_REFS_PER_MONTH},
        "enabled_extensions": list(enabled),
        "ext": Nested({name: Nested() for name in engine.schema.shared_on(_CONFIG, tuple(enabled))}),
    }

    def write(transaction: Transaction) -> None:
        for key, value in fields.items():
            transaction.set_key("config", key, None, value)

    engine.here.want(room)
    engine.writing.found(creator, doc_id("config", room_id=room), write)
    return {"room_id": room, "name": name, "encryption": level.value}


def list_rooms(context: OperationContext) -> list[calls.RoomSummary]:
    """Return the rooms that the caller is a member of."""
    return [_summary(context, state) for state in context.parts.here.of(context.entity)]


def get(context: OperationContext, room_id: RoomId) -> calls.RoomFound:
    """Return a room's config as it counts."""
    state = context.state(room_id)
    fields = {".".join(path): value for path, value in state.fields.items() if path[:2] not in (MEMBERS, USERS)}
    fields |= {".".join(path): _plain_level(fields[".".join(path)]) for path in state.fields if level_of(path)}
    summary = _summary(context, state)
    return {
        "room_id": summary["room_id"],
        "name": summary["name"],
        "encryption": summary["encryption"],
        "policy": summary["policy"],
        "role": summary["role"],
        "created_by": summary["created_by"],
        "write_level": summary["write_level"],
        "last_activity": summary["last_activity"],
        "invited": invited(context.parts.store, state, context.parts.keyring.local),
        "config": fields,
        "members": {
            entity: {"role": str(role), "power": state.power(entity)} for entity, role in state.members().items()
        },
    }


def _plain_level(value: Value) -> Value:
    """Return a level without what its writer had seen."""
    return value.get("level") if isinstance(value, dict) else value


def members(context: OperationContext, room_id: RoomId) -> dict[str, str]:
    """Return each member's role."""
    return {entity: str(role) for entity, role in context.state(room_id).members().items()}


def update_config(context: OperationContext, room_id: RoomId, changes: Fields) -> None:
    """Change fields of the config, named with dots, such as ``membership.policy``.

    A level that is changed tells what was seen of those whom it may take power from.
    """
    state, schema = context.state(room_id), context.parts.schema
    known = _known(context)
    timeline = state.fields.get(("timeline",))
    window: dict[str, Value] = {**timeline} if isinstance(timeline, dict) else {}
    writes: dict[tuple[str, ...], Written] = {}
    for name, given in changes.items():
        path, part = config_field(name, given)
        value = given if part is None else window | part
        check_value(schema, known, state, path, value)
        if path == ("timeline",) and isinstance(value, dict):
            window = window | value
            value = window
        if path[0] == "ext" and len(path) == 3 and not _has_map(context, room_id, path[:2]):
            writes[path[:2]] = Nested()
        if level_of(path) is not None:
            value = {"level": value, "seen": _seen(context, room_id, None)}
        writes[path] = value
    _write(context, room_id, list(writes.items()))


def _has_map(context: OperationContext, room_id: RoomId, path: tuple[str, ...]) -> bool:
    """Tell whether a nested map of the config is there; that of an extension is not, where the room began without."""
    return any(item.path == path and item.value == NESTED_MAP for item in context.parts.rooms.statements(room_id))


def invite(context: OperationContext, room_id: RoomId, entity: EntityId, role: str = "member") -> None:
    """Make somebody a member, or give a member another role."""
    state = context.state(room_id)
    if role not in (Role.MEMBER, Role.ADMIN, Role.OWNER):
        raise _wrong("a role is member, admin or owner")
    writes: list[tuple[tuple[str, ...], Written]] = [
        ((*MEMBERS, _entity(entity)), _grant(context, room_id, entity, role))
    ]
    if (*KNOCKS, entity) in state.fields:
        writes.append(((*KNOCKS, entity), None))
    _write(context, room_id, writes)


def join(context: OperationContext, room_id: RoomId) -> calls.RoomNamed:
    """Become a member of an open room whose config is here, or take up an invitation."""
    state = _told_of(context, room_id)
    if state.role(context.entity) is None:
        _write(context, room_id, [((*MEMBERS, context.entity), _grant(context, room_id, context.entity, "member"))])
    return {"room_id": room_id, "name": state.name}


def _told_of(context: OperationContext, room_id: RoomId) -> RoomState:
    """Return the state of a room of which somebody has told, whether the caller is a member or not.

    Raises:
        SubletError: ``NOT_FOUND``: its config is not here, so nothing is known of what it allows.
    """
    state = context.parts.rooms.state(room_id)
    if state.creator is None:
        raise SubletError(
            LocalCode.NOT_FOUND, "nobody who is reachable knows this room", "Try again when a member is up."
        )
    return state


def knock(context: OperationContext, room_id: RoomId, text: str = "") -> None:
    """Ask to be let in, by a room whose config is here."""
    _told_of(context, room_id)
    _write(context, room_id, [((*KNOCKS, context.entity), {"text": text[:MAX_KNOCK_CHARS]})])


def decline(context: OperationContext, room_id: RoomId, entity: EntityId) -> None:
    """Answer a knock with no; who knocks may do so again."""
    if (*KNOCKS, entity) not in context.state(room_id).fields:
        raise SubletError(LocalCode.NOT_FOUND, "nobody of that name knocks", "sublet room show names who does.")
    _write(context, room_id, [((*KNOCKS, entity), None)])


def leave(context: OperationContext, room_id: RoomId, reason: str = "") -> None:
    """Leave a room; what was sent before stays."""
    context.state(room_id)
    _write(context, room_id, [((*MEMBERS, context.entity), _removal(context, room_id, context.entity, reason=reason))])


def kick(context: OperationContext, room_id: RoomId, entity: EntityId, reason: str = "", ban: bool = False) -> None:
    """Remove somebody of less power; what this daemon has of theirs stays, what they write later does not count."""
    context.state(room_id)
    _write(
        context, room_id, [((*MEMBERS, _entity(entity)), _removal(context, room_id, entity, reason=reason, banned=ban))]
    )


def set_power(context: OperationContext, room_id: RoomId, entity: EntityId, level: int) -> None:
    """Give a member another power, from 0 to 100."""
    context.state(room_id)
    value: Value = {"level": level, "seen": _seen(context, room_id, entity)}
    _write(context, room_id, [((*USERS, _entity(entity)), value)])


_CONFIG: Final = AnnotationPlace.ON_ROOM_CONFIG


def _write(context: OperationContext, room_id: RoomId, writes: list[tuple[tuple[str, ...], Written]]) -> None:
    config = doc_id("config", room_id=room_id)
    context.parts.writing.set_fields(context.entity, config, [(None, path, value) for path, value in writes])


def _grant(context: OperationContext, room_id: RoomId, entity: EntityId, role: str) -> Value:
    """Return a grant; where its subject has written before, it tells what was written outside, or in another role."""
    state = context.parts.rooms.state(room_id)
    seen = _seen(context, room_id, entity) if state.role(entity) != role else {}
    return {"role": role, "seen": seen} if seen else role


def _removal(
    context: OperationContext, room_id: RoomId, entity: EntityId, reason: str = "", banned: bool = False
) -> Value:
    value: dict[str, Value] = {"role": "left", "seen": _seen(context, room_id, entity)}
    if reason:
        value["reason"] = reason
    if banned:
        value["banned"] = True
    return value


def _seen(context: OperationContext, room_id: RoomId, entity: EntityId | None) -> dict[str, Value]:
    clocks = context.parts.store.clients_of(room_id, entity)
    return seen_value({name.split("/", 2)[2]: by_client for name, by_client in clocks.items()})


def _summary(context: OperationContext, state: RoomState) -> calls.RoomSummary:
    return {
        "room_id": state.room_id,
        "name": state.name,
        "encryption": strongest([state.fields.get(("encryption",))]).value,
        "policy": str(state.policy),
        "role": str(state.role(context.entity)),
        "members": len(state.members()),
        "created_by": state.creator or "",
        "write_level": state.level("events_default").value,
        "last_activity": rfc3339_of_ms(_last_activity(context, state.room_id)),
    }


def _last_activity(context: OperationContext, room_id: RoomId) -> int:
    """Return when something was last said in a room, or when it was opened; Unix milliseconds, never ahead of now.

    By the ids of refs alone: a list of rooms opens no documents.
    """
    parts = context.parts
    # By what came last, not by what stands last: somebody may write of times to come.
    newest = parts.store.ranks.newest_ref(room_id)
    latest = ref_ms(newest) if newest is not None else created_ms(room_id)
    return min(latest, parts.now_ms())


def _extensions(context: OperationContext) -> list[str]:
    return list(_known(context))


def _known(context: OperationContext) -> dict[str, frozenset[str]]:
    """Return the extensions that are here, in order, and what each needs."""
    declared = context.parts.declared.declarations
    return {item.id: frozenset(item.dependencies) for item in declared if item.origin is not Origin.BUILT_IN}


def _entity(text: str) -> EntityId:
    if not is_entity_id(text):
        raise _wrong(f"{text[:80]!r} is no entity id; one looks like @alice:node-…")
    return text


def _wrong(message: str) -> SubletError:
    return SubletError(LocalCode.INVALID_ARGUMENT, message, "sublet room --help names the fields.")
