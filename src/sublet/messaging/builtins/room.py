"""Room: who is in it, with which power, and what it allows (ezagent 4.2). What counts is decided in ``protocol``."""

from __future__ import annotations

from sublet.messaging.builtins import room_operations as operations
from sublet.messaging.calls import room_calls as calls
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import (
    ANY_DATATYPE,
    AfterWriteHook,
    Declaration,
    Hooks,
    Index,
    Operation,
    PreSendHook,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.reconciling.contradictions import CONTRADICTED_EVENT, ROLLED_BACK_EVENT
from sublet.messaging.rooms.standing import INVITED_EVENT, JOINED_EVENT
from sublet.messaging.schema.changes import Intent
from sublet.messaging.schema.datatypes import QOS_CONFIG, Change, Datatype, Origin
from sublet.messaging.trust.clocks import CLOCK_EVENT
from sublet.messaging.trust.forks import EQUIVOCATION_EVENT
from sublet.protocol.errors import LocalCode
from sublet.protocol.ezagent.room.state import NO_POWER
from sublet.protocol.ezagent.room.statements import KNOCKS, NESTED_MAP, Statement
from sublet.protocol.ezagent.room.table import allowed
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.ezagent.yjs.encode import Nested


def _in_a_room(intent: Intent) -> bool:
    return intent.room_id is not None and intent.datatype != "room_config"


def _check_room_write(context: PreSend) -> None:
    """Let only members write, with the power that the room asks for."""
    room = context.room
    power = room.power(context.intent.entity) if room is not None else NO_POWER
    if room is None or power == NO_POWER:
        raise context.refuse(
            "you are not a member of this room, or there is none", "Ask a member to invite you.", LocalCode.NOT_FOUND
        )
    if power < room.level("events_default").value:
        raise context.refuse(
            "the room asks for more power than you have", "An admin may raise yours.", LocalCode.POLICY_DENIED
        )


def _check_config(context: PreSend) -> None:
    """Let only those write a field of the config whom the table allows it, as every other peer decides too."""
    room, path, value = context.room, tuple(context.fields["path"]), context.fields["value"]
    written = NESTED_MAP if isinstance(value, Nested) else value
    statement = Statement((0, 0), context.intent.entity, path, written, None, None, 0)
    if room is None or not allowed(statement, room):
        raise context.refuse(
            f"you may not change {'.'.join(path)} of this room",
            "sublet room show tells who may; the last owner can't leave.",
            LocalCode.POLICY_DENIED,
        )


def _notify(context: AfterWrite) -> None:
    """Tell who came and who went, and that the config is another."""
    before, after = context.change.before, context.change.after
    if after is None:
        return
    earlier = before.members() if before is not None else {}
    now = after.members()
    for entity in sorted(set(now) - set(earlier)):
        context.emit("room.member.joined", {"entity": entity, "role": str(now[entity]), "local": context.change.local})
    for entity in sorted(set(earlier) - set(now)):
        last = (
            after.entities[entity].removals[-1]
            if entity in after.entities and after.entities[entity].removals
            else None
        )
        by, reason = (last.by, last.reason) if last is not None else (entity, "")
        context.emit("room.member.left", {"entity": entity, "by": by, "reason": reason})
    known = before.fields if before is not None else {}
    for path, value in after.fields.items():
        if path[:2] == KNOCKS and path not in known and isinstance(value, dict):
            context.emit("room.knocked", {"entity": path[2], "text": str(value.get("text", ""))})
    context.emit("room.config.updated", {"by": context.change.signer})


ROOM = Declaration(
    id="room",
    version="0.1.0",
    dependencies=("identity",),
    origin=Origin.BUILT_IN,
    datatypes=(
        Datatype(
            id="room_config",
            storage_type=StorageType.CRDT_MAP,
            key_pattern="ezagent/{room_id}/config/{state|updates}",
            persistent=True,
            writer_rule="signer.power_level >= admin",
            qos=QOS_CONFIG,
        ),
    ),
    hooks=Hooks(
        pre_send=(
            PreSendHook(
                "room.check_room_write",
                Trigger(ANY_DATATYPE, Change.ANY, "key starts with ezagent/{room_id}/", _in_a_room),
                10,
                _check_room_write,
            ),
            PreSendHook("room.check_config_permission", Trigger("room_config", Change.UPDATE), 20, _check_config),
        ),
        after_write=(
            AfterWriteHook(
                "room.member_change_notify",
                Trigger("room_config", Change.UPDATE, "membership changed"),
                50,
                _notify,
            ),
        ),
    ),
    indexes=(
        Index(
            id="room_list",
            input="all room_config where signer ∈ members",
            transform="room_id -> summary",
            refresh=Refresh.ON_CHANGE,
            operation_id=calls.list_rooms.id,
            read=calls.list_rooms.by(operations.list_rooms),
        ),
        Index(
            id="member_list",
            input="room_config.membership.members",
            transform="entity_id -> role",
            refresh=Refresh.ON_CHANGE,
            operation_id=calls.members.id,
            read=calls.members.by(operations.members),
        ),
    ),
    operations=(
        Operation(calls.create.id, calls.create.by(operations.create), writes="room_config"),
        Operation(calls.get.id, calls.get.by(operations.get)),
        Operation(calls.update_config.id, calls.update_config.by(operations.update_config), writes="room_config"),
        Operation(calls.join.id, calls.join.by(operations.join), writes="room_config"),
        Operation(calls.knock.id, calls.knock.by(operations.knock), writes="room_config"),
        Operation(calls.decline.id, calls.decline.by(operations.decline), writes="room_config"),
        Operation(calls.leave.id, calls.leave.by(operations.leave), writes="room_config"),
        Operation(calls.invite.id, calls.invite.by(operations.invite), writes="room_config"),
        Operation(calls.kick.id, calls.kick.by(operations.kick), writes="room_config"),
        Operation(calls.set_power.id, calls.set_power.by(operations.set_power), writes="room_config"),
    ),
    events=(
        INVITED_EVENT,
        JOINED_EVENT,
        "room.member.joined",
        "room.member.left",
        "room.knocked",
        "room.config.updated",
        EQUIVOCATION_EVENT,
        ROLLED_BACK_EVENT,
        CONTRADICTED_EVENT,
        CLOCK_EVENT,
        "room.agents_ended",
    ),
)
