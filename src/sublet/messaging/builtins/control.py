"""Control: messages that steer something name the process in which it runs, and steer nothing in another (DESIGN 6.9).

A message that is sent with ``ext={"asks": True}`` is a question of that process. What replies to it, and what is sent
with ``ext={"control": {"to": ENTITY}}``, carries the epoch of the daemon that it is for. Once that has been started
again, whoever would send it is told so, where that is known; where it isn't, the other side tells ``control.stale``.
"""

from __future__ import annotations

from typing import Any, Final

from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import AfterWriteHook, Declaration, Hooks, PreSendHook, Trigger
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Origin
from sublet.messaging.schema.fields import Fields, FieldsView
from sublet.protocol.errors import LocalCode
from sublet.protocol.ezagent.ids import EntityId, is_entity_id, is_ref_id
from sublet.protocol.patterns import Pattern
from sublet.protocol.times import unix_ms

ASKS: Final = "asks"
CONTROL: Final = "control"
_EPOCH = Pattern(r"[0-9a-f]{16}\Z")


def epoch_asking(fields: FieldsView) -> str | None:
    """Return the epoch of the process that asks by a message; None where it asks nothing."""
    value = fields.get(f"ext.{ASKS}")
    return value if isinstance(value, str) and _EPOCH.match(value) else None


def control_of(fields: FieldsView) -> tuple[EntityId, str] | None:
    """Return whom a message steers, and in which epoch; None where it steers nobody."""
    value = fields.get(f"ext.{CONTROL}")
    if not isinstance(value, dict):
        return None
    to, epoch = value.get("to"), value.get("epoch")
    if not isinstance(to, str) or not is_entity_id(to) or not isinstance(epoch, str) or not _EPOCH.match(epoch):
        return None
    return to, epoch


def _may_concern(intent: Intent) -> bool:
    return any(f"ext.{name}" in intent.fields for name in (ASKS, CONTROL, "reply_to"))


def _bind(context: PreSend) -> None:
    """Name the epochs, and refuse what could only come too late."""
    fields = context.fields
    if f"ext.{ASKS}" in fields:
        context.annotate(ASKS, context.epoch_of(context.intent.entity))
    given, answered = fields.get(f"ext.{CONTROL}"), _answered(context)
    if given is None and answered is None:
        return
    to = given.get("to") if isinstance(given, dict) else answered["author"] if answered is not None else None
    if not isinstance(to, str) or not is_entity_id(to):
        raise context.refuse("what steers names whom it is for", "Give to, an entity.")
    now = context.epoch_of(to)
    asking = epoch_asking(answered) if answered is not None and answered["author"] == to else None
    epoch: Any = asking or now
    if isinstance(given, dict) and "epoch" in given:
        epoch = given["epoch"]
    if epoch is None:
        raise context.refuse(
            f"nothing has been heard of the daemon of {to} yet", "Send it once it has answered.", LocalCode.UNAVAILABLE
        )
    if not isinstance(epoch, str) or not _EPOCH.match(epoch):
        raise context.refuse("that is no epoch", "Leave it out.")
    if now is not None and now != epoch:
        raise context.refuse(
            f"the daemon of {to} has been started again since, and what this is for is gone",
            "Nothing was sent. See what it asks now, or say it without replying to what it asked then.",
            LocalCode.CONFLICT,
        )
    context.annotate(CONTROL, {"to": to, "epoch": epoch})


def _answered(context: PreSend) -> Fields | None:
    """Return the question that a message replies to; None where it replies to none."""
    value = context.fields.get("ext.reply_to")
    ref_id = value.get("ref_id") if isinstance(value, dict) and value.get("room_id") is None else value
    room = context.intent.room_id
    if room is None or not isinstance(ref_id, str) or not is_ref_id(ref_id):
        return None
    ref = context.read_ref(room, ref_id)
    return ref if ref is not None and epoch_asking(ref) is not None else None


def _concerns(subject: Intent | Happened) -> bool:
    return f"ext.{CONTROL}" in subject.fields or f"ext.{ASKS}" in subject.fields


def _tell(context: AfterWrite) -> None:
    """Learn the epoch of who asks, and tell of what steers one of ours, or would have."""
    change = context.change
    asks, control = epoch_asking(change.fields), control_of(change.fields)
    sent_ms = unix_ms(str(change.fields["created_at"]))
    if asks is not None and sent_ms is not None and not change.local:
        context.learn_epoch(change.signer, asks, sent_ms)
    if control is not None and control[0] in context.ours():
        kind = "control.received" if control[1] == context.epoch_of(control[0]) else "control.stale"
        context.emit(kind, {"ref_id": change.entry_id, "to": control[0], "by": change.signer})


CONTROLS: Final = Declaration(
    id="control",
    version="1",
    dependencies=("timeline",),
    origin=Origin.BUILT_IN,
    hooks=Hooks(
        pre_send=(
            PreSendHook(
                "control.bind",
                Trigger("timeline_index", Change.INSERT, "asks, steers, or answers what asks", _may_concern),
                35,
                _bind,
            ),
        ),
        after_write=(
            AfterWriteHook(
                "control.tell", Trigger("timeline_index", Change.INSERT, "asks or steers", _concerns), 35, _tell
            ),
        ),
    ),
    annotations=(
        Annotation(AnnotationPlace.ON_REF, ASKS, "epoch of the process that asks"),
        Annotation(AnnotationPlace.ON_REF, CONTROL, "{ to: entity_id, epoch }"),
    ),
    events=("control.received", "control.stale"),
)
