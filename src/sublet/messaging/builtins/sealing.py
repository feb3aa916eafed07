"""Sealing: what members say of the keys of a room that is sealed for them. ``messaging.sealing`` does the rest."""

from __future__ import annotations

from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import AfterWriteHook, Declaration, Hooks, Trigger
from sublet.messaging.schema.datatypes import QOS_CONFIG, Change, Datatype, Origin
from sublet.messaging.sealing.room_seals import BY, KEY_EVENT, SEALING, STATEMENT_ID
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.ezagent.sealing.events import Complaint


def _readers(context: AfterWrite) -> None:
    context.changes_readers()


def _said(context: AfterWrite) -> None:
    context.says_of_keys()


SEALS = Declaration(
    id=SEALING,
    version="0.1.0",
    dependencies=("room",),
    origin=Origin.BUILT_IN,
    datatypes=(
        Datatype(
            id="room_keys",
            storage_type=StorageType.CRDT_ARRAY,
            key_pattern="ezagent/{room_id}/ext/sealing/{state|updates}",
            persistent=True,
            writer_rule="signer ∈ room.members",
            qos=QOS_CONFIG,
            entry_id=STATEMENT_ID,
            entry_author=BY,
        ),
    ),
    hooks=Hooks(
        after_write=(
            AfterWriteHook("sealing.readers", Trigger("room_config", Change.UPDATE), 80, _readers),
            AfterWriteHook("sealing.said", Trigger("room_keys", Change.INSERT), 80, _said),
        ),
    ),
    events=tuple(KEY_EVENT.format(complaint) for complaint in Complaint),
)
