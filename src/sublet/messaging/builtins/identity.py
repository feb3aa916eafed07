"""Identity: who signs, and whose key is whose (ezagent 4.1).

Signatures are made by the writer and verified by the intake, before anything is applied, which is stricter than a hook
after the write could be; what is left for hooks is the author's own signature of a ref.
"""

from __future__ import annotations

from sublet.messaging.builtins.devices import add_device, list_devices, remove_device
from sublet.messaging.builtins.verifying import init, register, shown, verify_peer
from sublet.messaging.calls import device_calls
from sublet.messaging.calls import room_calls as calls
from sublet.messaging.declaring.declaration import (
    ANY_DATATYPE,
    Declaration,
    Hooks,
    Index,
    Operation,
    PreSendHook,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Datatype, Origin
from sublet.messaging.schema.fields import Fields
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.roots import StorageType


def _sign(context: PreSend) -> None:
    """Sign a ref when nothing of it changes any more; the envelope is signed by whoever encodes it."""
    if context.intent.datatype == "timeline_index" and context.intent.event is Change.INSERT:
        context.sign_ref()


def _whoami(context: OperationContext) -> Fields:
    return shown(context, context.entity)


def _get_pubkey(context: OperationContext, entity_id: EntityId) -> Fields:
    return shown(context, entity_id)


IDENTITY = Declaration(
    id="identity",
    version="0.1.0",
    origin=Origin.BUILT_IN,
    datatypes=(
        Datatype(
            id="entity_keypair",
            storage_type=StorageType.BLOB,
            key_pattern="ezagent/@{entity_id}/identity/pubkey",
            persistent=True,
            writer_rule="signer == entity_id",
        ),
    ),
    hooks=Hooks(
        pre_send=(
            PreSendHook("identity.sign_envelope", Trigger(ANY_DATATYPE, Change.ANY), priority=0, run=_sign, last=True),
        ),
    ),
    annotations=(
        Annotation(
            AnnotationPlace.ON_ENTITY,
            "device_keys",
            "keys of devices, each signed by a device of the entity",
            writer_rule="signer == entity_id",
        ),
    ),
    indexes=(
        Index(
            id="entity_lookup",
            input="records of entities that were met",
            transform="entity_id -> public key",
            refresh=Refresh.ON_DEMAND,
            operation_id=calls.get_pubkey.id,
            read=calls.get_pubkey.by(_get_pubkey),
        ),
    ),
    operations=(
        Operation("identity.whoami", _whoami),
        Operation("identity.init", init, waits=True),
        Operation("identity.register", register),
        Operation(device_calls.devices.id, device_calls.devices.by(list_devices)),
        Operation(device_calls.add_device.id, device_calls.add_device.by(add_device)),
        Operation(device_calls.remove_device.id, device_calls.remove_device.by(remove_device)),
        Operation(calls.verify_peer.id, calls.verify_peer.by_waiting(verify_peer), waits=True),
    ),
)
