"""An extension of a third party, for tests: its hooks say in which order they ran, and one tries what it may not.

It acts on messages that are sent with ``ext={"probe": []}``.
"""

from __future__ import annotations

from sublet.messaging.declaring.after_write import AfterWrite, HookViolation
from sublet.messaging.declaring.declaration import AfterWriteHook, Declaration, Hooks, PreSendHook, Trigger
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change

NAME = "ext.probe"
SIGNED = "ext.command"
"""A field that the author's signature of the ref covers."""


def _is_probe(intent: Intent) -> bool:
    return NAME in intent.fields


def _first(context: PreSend) -> None:
    context.annotate("probe", ["first"])


def _second(context: PreSend) -> None:
    context.annotate("probe", [*context.fields[NAME], "second"])
    context.fields[SIGNED] = "by a hook"


def _is_deletion(change: Happened) -> bool:
    return change.path == ("status",)


def _undo(context: AfterWrite) -> None:
    change = context.change
    try:
        context.write_field(change.doc_id, change.entry_id, ("status",), "active")
    except HookViolation as violation:
        context.emit("probe.violation", {"ref_id": change.entry_id, "error": str(violation)})


PROBE = Declaration(
    id="probe",
    version="1",
    dependencies=("timeline",),
    annotations=(Annotation(AnnotationPlace.ON_REF, "probe", "names of hooks, in their order"),),
    hooks=Hooks(
        pre_send=(
            PreSendHook("probe.second", Trigger("timeline_index", Change.INSERT, applies=_is_probe), 150, _second),
            PreSendHook("probe.first", Trigger("timeline_index", Change.INSERT, applies=_is_probe), 120, _first),
        ),
        after_write=(
            AfterWriteHook(
                "probe.undo", Trigger("timeline_index", Change.UPDATE, applies=_is_deletion), 120, _undo, writes=True
            ),
        ),
    ),
    events=("probe.violation",),
)
