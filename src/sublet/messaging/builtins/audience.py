"""To whom a message was sent: who was a member, kept whenever that changes, so that a message costs nothing more."""

from __future__ import annotations

from typing import Final

from sublet.messaging.engine.backend import IndexEntry
from sublet.messaging.engine.contexts import AfterWrite
from sublet.messaging.engine.declaration import (
    AfterWriteHook,
    Change,
    Declaration,
    Hooks,
    Index,
    Origin,
    Refresh,
    Trigger,
)
from sublet.messaging.engine.engine import Engine
from sublet.protocol.ezagent.ids import EntityId, RoomId

_INDEX: Final = "audience"


def audience(engine: Engine, room_id: RoomId, seq: int) -> list[EntityId]:
    """Return who was a member, by what was known here when something was accepted.

    Args:
        engine: the engine.
        room_id: the room.
        seq: the number in the log of what was accepted.
    """
    found = engine.store.scan_index(_INDEX, room_id, 1, below=_rank(seq + 1))
    given = found[0].value["members"] if found else []
    return [str(member) for member in given] if isinstance(given, list) else []


def _rank(seq: int) -> str:
    return f"{seq:016d}"


def _remember(context: AfterWrite) -> None:
    change = context.change
    if change.after is None or change.room_id is None:
        return
    now = sorted(change.after.members())
    if change.before is None or sorted(change.before.members()) != now:
        context.index([IndexEntry(_INDEX, change.room_id, _rank(change.seq), {"members": [*now]})])


AUDIENCE: Final = Declaration(
    id="audience",
    version="1",
    dependencies=("room",),
    origin=Origin.BUILT_IN,
    hooks=Hooks(
        after_write=(
            AfterWriteHook("audience.remember", Trigger("room_config", Change.UPDATE, "members"), 60, _remember),
        ),
    ),
    indexes=(
        Index(
            id=_INDEX,
            input="room_config.membership.members",
            transform="room_id, number in the log -> members",
            refresh=Refresh.ON_CHANGE,
        ),
    ),
)
