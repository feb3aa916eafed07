"""Node: what runs here, for whoever asks (ezagent 10.2, ``status``)."""

from __future__ import annotations

from typing import Any

from sublet.messaging.declaring.declaration import Declaration, Index, Origin, Refresh
from sublet.messaging.declaring.operating import OperationContext


def _status(context: OperationContext) -> dict[str, Any]:
    """Return what runs here: the level, our entities and extensions, the caller's rooms, and what came of updates.

    ``updates`` counts those that were accepted, held, doubled, and refused by reason, since this process began.
    """
    engine = context.engine
    added = [one for one in engine.registry.declarations if one.origin is not Origin.BUILT_IN]
    return {
        "entity_id": context.entity,
        "level": engine.registry.level,
        "entities": sorted(engine.keyring.local),
        "extensions": {one.id: {"version": one.version, "origin": str(one.origin)} for one in added},
        "rooms": [state.room_id for state in engine.rooms_of(context.entity)],
        "cursor": engine.events.cursor,
        "updates": {str(name): count for name, count in engine.intake.counts.items()},
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
