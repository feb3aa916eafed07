"""Delivery: to whom a message was sent; who reads a page of a room has taken up what is new in it (DESIGN 6.9).

Who was a member is kept whenever that changes, so that a message costs nothing more.
"""

from __future__ import annotations

from typing import Final, Protocol

from sublet.messaging.builtins.timeline import HOPS
from sublet.messaging.declaring.after_read import AfterRead
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import (
    AfterReadHook,
    AfterWriteHook,
    Declaration,
    Hooks,
    Index,
    Refresh,
    Trigger,
)
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.ports.store import Store
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Origin
from sublet.protocol.ezagent.ids import EntityId, RoomId

_INDEX: Final = "audience"


class AudienceParts(Protocol):
    """The parts of the engine for knowing who was a member."""

    @property
    def store(self) -> Store: ...


def audience(engine: AudienceParts, room_id: RoomId, seq: int) -> list[EntityId]:
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


def _take_up(context: AfterRead) -> None:
    if context.page and not context.quoted and not context.query:
        cursor, refs = context.cursor, {str(item["ref_id"]) for item in context.items}
        context.write_back(lambda later: later.parts.cursors.page_shown(later.entity, context.room_id, cursor, refs))


DELIVERY: Final = Declaration(
    id="delivery",
    version="1",
    dependencies=("room", "timeline"),
    origin=Origin.BUILT_IN,
    hooks=Hooks(
        after_write=(
            AfterWriteHook("delivery.audience", Trigger("room_config", Change.UPDATE, "members"), 60, _remember),
        ),
        after_read=(AfterReadHook("delivery.take_up", Trigger("timeline_index"), 75, _take_up),),
    ),
    annotations=(Annotation(AnnotationPlace.ON_REF, HOPS, "messages of agents that this one answers, in a row"),),
    indexes=(
        Index(
            id=_INDEX,
            input="room_config.membership.members",
            transform="room_id, number in the log -> members",
            refresh=Refresh.ON_CHANGE,
        ),
    ),
)
