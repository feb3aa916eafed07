"""What reconciling needs of a database: the digest tree of each room, and what is named and not fetched yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sublet.messaging.ports.rows import DocumentRow
from sublet.protocol.ezagent.digest_tree import Node, Prefix
from sublet.protocol.ezagent.ids import EntityId, RoomId


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf: where it stands, of which document, and of which row of the log where it is one that only deletes."""

    place: bytes
    document: int
    seq: int
    node: Node


class TreeStore(Protocol):
    """The digest trees of rooms. They change with what is written, in the same transaction."""

    @property
    def is_built(self) -> bool:
        """Whether all that an older version has written is in the trees."""

    def build_some(self) -> bool:
        """Take in some of what an older version has written; inside a transaction. Tell whether there is more."""

    def root(self, room_id: RoomId) -> Node:
        """Return the node above all leaves of a room."""

    def children(self, room_id: RoomId, prefix: Prefix) -> list[Node]:
        """Return the nodes of a prefix with each further digit."""

    def leaves(self, room_id: RoomId, prefix: Prefix) -> list[Leaf] | None:
        """Return the leaves below a prefix in order; None where they are more than are told one by one."""

    def leaf(self, room_id: RoomId, place: bytes) -> Leaf | None:
        """Return the leaf at a place."""

    def counted(self, document: DocumentRow) -> int:
        """Return how much was written into a document by all, as its digest has counted it; 0 where it has none."""

    def due(self, room_id: RoomId, limit: int) -> list[bytes]:
        """Return places of a room that somebody has named and that were not fetched yet."""

    def put_due(self, room_id: RoomId, places: Sequence[bytes]) -> None:
        """Keep such places; inside a transaction."""

    def drop_due(self, room_id: RoomId, places: Sequence[bytes]) -> None:
        """Forget such places, since somebody has told all of them that they have; inside a transaction."""

    def said(self, room_id: RoomId) -> dict[EntityId, tuple[int, bytes]]:
        """Return what members have last signed that they have of a room, with its time by their own clock in ms."""

    def put_said(self, room_id: RoomId, entity: EntityId, at_ms: int, raw: bytes) -> None:
        """Keep what a member has signed; inside a transaction."""
