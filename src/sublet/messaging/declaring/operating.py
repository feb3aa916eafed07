"""What an operation has (ezagent 10.2): who asks, and the parts of the engine, on whose thread it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sublet.messaging.events.cursors import Cursors
from sublet.messaging.events.events import Events
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.intake.intake import Intake
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.opening.room_order import RoomOrder
from sublet.messaging.opening.shards import TimelineShards
from sublet.messaging.passing.ephemeral import Ephemeral
from sublet.messaging.ports.blobs import BlobStore
from sublet.messaging.ports.purge_store import Kind, PurgedRow
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.ports.store import Store
from sublet.messaging.purging.purges import Purges
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.changes import RunsHooks
from sublet.messaging.schema.datatypes import AnnotationPlace, Origin
from sublet.messaging.schema.fields import Fields, FieldsView, Written
from sublet.messaging.schema.schema import Schema
from sublet.messaging.sealing.room_seals import RoomSeals
from sublet.messaging.texts.texts import Texts
from sublet.messaging.writing.writing import Writing
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.purge import Gone
from sublet.protocol.ezagent.room.state import RoomState
from sublet.protocol.ezagent.yjs.encode import Nested


class Shows(Protocol):
    """Shows refs as a reader sees them, after the hooks."""

    def shown(
        self,
        reader: EntityId,
        room_id: RoomId,
        refs: list[Fields],
        query: Mapping[str, str] | None = None,
        *,
        quoted: bool = False,
        page: bool = False,
    ) -> list[Fields]:
        """Return refs of a room as a reader sees them: with contents, and what extensions make of them."""

    def quoted(self, reader: EntityId, room_id: RoomId, ref_id: RefId) -> Fields | None:
        """Return a ref of any room as a reader sees it there; None where there is none, or the reader is no member."""


class Declared(Protocol):
    """A declaration, as operations tell of it."""

    @property
    def id(self) -> str:
        """Return its name."""

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Return the ids of the declarations that have to be there."""

    @property
    def version(self) -> str:
        """Return which version of it this is, as its author numbers them."""

    @property
    def origin(self) -> Origin:
        """Return where it comes from."""


class Declarations(Protocol):
    """What is declared here."""

    @property
    def declarations(self) -> Sequence[Declared]:
        """Return all of it, in the order of dependencies."""

    @property
    def level(self) -> int | None:
        """Return the highest compliance level whose parts are all here."""


@dataclass(frozen=True, slots=True)
class OperationParts:
    """The parts that operations use. An operation's helpers take those of them that they need."""

    store: Store
    schema: Schema
    declared: Declarations
    rooms: RoomStates
    here: RoomsHere
    documents: OpenDocuments
    shards: TimelineShards
    order: RoomOrder
    reading: Reading
    shows: Shows
    writing: Writing
    texts: Texts
    keyring: Keyring
    ephemeral: Ephemeral
    events: Events
    cursors: Cursors
    intake: Intake
    purges: Purges
    seals: RoomSeals
    blobs: BlobStore
    hooks: RunsHooks
    content_numbers: Iterator[int]
    now_ms: Callable[[], int]


class OperationContext:
    """What an operation has: who asks, one of ours and authenticated before, and the parts that it may use."""

    def __init__(self, parts: OperationParts, entity: EntityId) -> None:
        self.parts = parts
        self.entity = entity

    def rank(self, room_id: RoomId, ref_id: RefId) -> int:
        """Return where a ref of a room stands.

        Raises:
            SubletError: ``NOT_FOUND``: there is none.
        """
        found = self.parts.store.find_entry(ref_id)
        if found is None or found[0].room_id != room_id:
            raise no_message(ref_id)
        node = self.parts.documents.open(found[0].doc_id).elements.node(found[1])
        if node is None:
            raise no_message(ref_id)
        return node.rank

    def state(self, room_id: RoomId) -> RoomState:
        """Return the state of a room that the caller may read.

        Raises:
            SubletError: ``NOT_FOUND``: there is none here, or the caller is no member, which is not told apart.
        """
        state = self.parts.rooms.state(room_id)
        if state.role(self.entity) is None:
            raise SubletError(
                LocalCode.NOT_FOUND, "no such room, or you are not a member of it", "List rooms, or ask to be invited."
            )
        return state

    def require_enabled(self, room_id: RoomId, extension: str) -> None:
        """Refuse to write what nobody would see: what belongs to an extension that a room has switched off.

        Raises:
            SubletError: ``NOT_FOUND``: see ``state``; ``CONFLICT``: the extension is off.
        """
        if extension not in self.state(room_id).enabled_extensions:
            raise SubletError(
                LocalCode.CONFLICT,
                f"{extension} is switched off in this room",
                f"An admin may switch it on: sublet room config {room_id} --enable {extension}",
            )

    def ref(self, room_id: RoomId, ref_id: RefId) -> Fields:
        """Return a ref of a room that the caller may read, as it counts and without contents.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        self.state(room_id)
        ref = self.parts.reading.ref_in(room_id, ref_id)
        if ref is None:
            raise no_message(ref_id)
        return ref

    def purged(self, room_id: RoomId, ref_id: RefId) -> PurgedRow | None:
        """Return what of a message is gone for good; None where nothing is."""
        rows = self.parts.store.purges.rows_named(room_id, Kind.REF, ref_id)
        return rows[0] if rows else None

    def refuse_purged(self, room_id: RoomId, ref_id: RefId) -> None:
        """Refuse to change what a message says that is gone for good.

        Raises:
            SubletError: ``CONFLICT``.
        """
        gone = self.purged(room_id, ref_id)
        if gone is not None and gone.what is Gone.MESSAGE:
            raise SubletError(LocalCode.CONFLICT, "this message was purged", "Send another one.")

    def annotate(self, ref: FieldsView, name: str, key: str, value: Written) -> None:
        """Write a key of an annotation of a ref that is a shared map; None takes it away.

        Args:
            ref: what ``ref`` has returned.
            name: the annotation, without ``ext.``.
            key: the key.
            value: what to write.

        Raises:
            SubletError: a hook refuses it; ``CONFLICT``: the room has not enabled what it belongs to.
        """
        parts, path = self.parts, (f"ext.{name}", key)
        extension = parts.schema.extension_of(AnnotationPlace.ON_REF, name)
        if extension is not None:
            self.require_enabled(ref["room_id"], extension)
        document = parts.documents.open(doc_id("index", room_id=ref["room_id"], shard_id=ref["shard_id"]))
        target: RefId = ref["ref_id"]
        node = document.elements.named(target)
        writes: list[tuple[RefId | None, tuple[str, ...], Written]] = [(target, path, value)]
        if node is not None and not parts.reading.is_shared(document, node.id, path[0]):
            enabled = parts.rooms.state(ref["room_id"]).enabled_extensions
            if name in parts.schema.shared_on(AnnotationPlace.ON_REF, enabled):
                writes.insert(0, (target, path[:1], Nested()))
        # Where several made the map at once the key may stand in each of them; it is taken away from all.
        times = parts.reading.held(document, node.id, path) if value is None and node is not None else 1
        for _ in range(max(1, times)):
            parts.writing.set_fields(self.entity, document.row.doc_id, writes)

    def set_field(self, doc_id: str, path: tuple[str, ...], value: Written) -> None:
        """Write a field of a map document; None takes it away.

        Raises:
            SubletError: a hook refuses it, or there is no such document.
        """
        self.parts.writing.set_field(self.entity, doc_id, None, path, value)

    def read_document(self, doc_id: str) -> Fields:
        """Return a map document as it counts."""
        return self.parts.reading.map_document(doc_id)

    def scan_index(self, index: str, key: str, limit: int) -> list[IndexEntry]:
        """Return entries of an index, highest rank first."""
        return self.parts.store.scan_index(index, key, limit)

    def shown(self, room_id: RoomId, ref_ids: Iterable[RefId], query: Mapping[str, str] | None = None) -> list[Fields]:
        """Return those of some refs that are in a room and count, as the caller sees them: after the hooks.

        Args:
            room_id: the room.
            ref_ids: the refs, in the order in which they are returned.
            query: which view of the room is asked for, as hooks see it (``AfterRead.query``).
        """
        found = (self.parts.reading.ref_in(room_id, ref_id) for ref_id in ref_ids)
        return self.parts.shows.shown(self.entity, room_id, [ref for ref in found if ref is not None], query)


def no_message(ref_id: RefId) -> SubletError:
    """Return the error for a message that a room does not have."""
    return SubletError(
        LocalCode.NOT_FOUND, f"no message {ref_id} in this room", "Read the room for the ids of messages."
    )
