"""Changes: what somebody wants to write, what was accepted, and who runs the hooks for both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from sublet.messaging.schema.datatypes import Change
from sublet.messaging.schema.fields import Fields, FieldsView
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId
from sublet.protocol.ezagent.room.state import RoomState
from sublet.protocol.ezagent.yjs.update import ItemId


@dataclass(frozen=True, slots=True)
class Happened:
    """A change that was accepted.

    ``fields`` are those of a new element; ``path`` and ``value`` those of a later write. ``local`` tells that it was
    made here, ``seq`` is its number in the log; ``before`` and ``after`` are the room's states around a change of its
    config.
    """

    datatype: str
    event: Change
    doc_id: str
    room_id: RoomId | None
    signer: EntityId
    item: ItemId
    entry_id: str | None = None
    fields: FieldsView = field(default_factory=dict)
    path: tuple[str, ...] = ()
    value: object = None
    local: bool = False
    passing: bool = False
    before: RoomState | None = None
    after: RoomState | None = None
    seq: int = 0


@dataclass(slots=True)
class Intent:
    """What somebody wants to write. ``fields`` may still change; ``target`` is the element that an update changes."""

    datatype: str
    event: Change
    doc_id: str
    room_id: RoomId | None
    entity: EntityId
    fields: Fields
    target: RefId | None = None


class RunsHooks(Protocol):
    """Runs the hooks of all declarations, as the parts that write and accept see it."""

    def watched(self, datatype: str) -> bool:
        """Tell whether any hook waits for changes of a datatype."""

    def pre_send(self, intent: Intent, contents: dict[str, bytes]) -> None:
        """Run the hooks before something is written.

        Raises:
            SubletError: a hook refuses it; nothing is written.
        """

    def after_write(self, change: Happened) -> None:
        """Run the hooks after something was accepted; one that fails is logged, since nothing can be taken back."""
