"""Node: what runs here, for whoever asks (ezagent 10.2, ``status``)."""

from __future__ import annotations

from sublet.messaging.declaring.declaration import Declaration, Index, Refresh
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.schema.datatypes import Origin
from sublet.messaging.schema.fields import Fields


def _status(context: OperationContext) -> Fields:
    """Return what runs here: the level, our entities and extensions, the caller's rooms, and what came of updates.

    ``updates`` counts those that were accepted, held, doubled, and refused by reason, since this process began.
    """
    parts = context.parts
    added = [one for one in parts.declared.declarations if one.origin is not Origin.BUILT_IN]
    return {
        "entity_id": context.entity,
        "level": parts.declared.level,
        "entities": sorted(parts.keyring.local),
        "extensions": {one.id: {"version": one.version, "origin": str(one.origin)} for one in added},
        "rooms": [state.room_id for state in parts.here.of(context.entity)],
        "cursor": parts.events.cursor,
        "updates": {str(name): count for name, count in parts.intake.counts.items()},
    }


NODE = Declaration(
    id="node",
    version="0.1.0",
    dependencies=("identity", "room"),
    origin=Origin.BUILT_IN,
    indexes=(
        Index(
            id="node_status",
            input="the registry, the keyring, the rooms, and the counts of the intake",
            transform="what runs here",
            refresh=Refresh.ON_DEMAND,
            operation_id="status",
            read=_status,
        ),
    ),
)
