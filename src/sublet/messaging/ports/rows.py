"""Rows that pass between messaging and its database: documents, entries, writes, the log, events and indexes."""

from __future__ import annotations

from dataclasses import dataclass, field

from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent.ids import ContentId, EntityId, RoomId
from sublet.protocol.ezagent.yjs.update import Deletion, ItemId


@dataclass(slots=True)
class DocumentRow:
    """A document that is kept."""

    number: int
    doc_id: str
    room_id: RoomId | None
    kind: str


@dataclass(slots=True)
class EntryRow:
    """An element of an array document, as it was added: where it stands, and where its fields are in the log.

    ``rank`` orders refs; before the document has taken one it is the least that the ref may have.
    """

    client: int
    clock: int
    length: int
    origin: ItemId | None
    right: ItemId | None
    entry_id: str
    signer: EntityId
    seq: int
    shown: bool
    rank: int = 0


@dataclass(frozen=True, slots=True)
class AfterRow:
    """A ref that names what its writer had seen in another shard: its item, that shard, and the item there."""

    item: ItemId
    doc_id: str
    after: ItemId


@dataclass(slots=True)
class WriteRow:
    """A later write of one key: of an element of an array, or of a map document where ``entry`` is None.

    ``container`` is the nested map written to, None for the root map or the element itself.
    ``value`` is the encoded value; None where the write makes a nested map.
    """

    client: int
    clock: int
    entry: ItemId | None
    container: ItemId | None
    key: str
    origin: ItemId | None
    right: ItemId | None
    signer: EntityId
    seq: int
    value: bytes | None


@dataclass(slots=True)
class DeletionRow:
    """A range that an update deletes, with who signed it."""

    deletion: Deletion
    signer: EntityId


@dataclass(slots=True)
class LogRow:
    """An envelope with the range of clocks it brings; ``client`` is None where it only deletes.

    ``head`` is a hash of all that its client has written in the document up to here, ``before`` of all before this,
    None where it is the first.
    """

    seq: int
    client: int | None
    start: int
    end: int
    envelope: bytes
    head: bytes | None
    before: bytes | None = None


@dataclass(slots=True)
class StagedUpdate:
    """All that one accepted update adds to the store.

    ``first`` tells that its client has written nothing before; ``superseded`` are writes of its signer that no longer
    count.
    """

    document: DocumentRow
    log: LogRow
    signer: EntityId
    first: bool
    entries: list[EntryRow] = field(default_factory=list)
    afters: list[AfterRow] = field(default_factory=list)
    writes: list[WriteRow] = field(default_factory=list)
    deletions: list[DeletionRow] = field(default_factory=list)
    superseded: list[ItemId] = field(default_factory=list)


@dataclass(slots=True)
class EventRow:
    """One event, at its cursor."""

    cursor: int
    kind: str
    room_id: RoomId | None
    data: dict[str, JsonValue]


@dataclass(slots=True)
class IndexEntry:
    """One entry of an index: found by ``key``, ordered by ``rank``."""

    index: str
    key: str
    rank: str
    value: dict[str, JsonValue]


@dataclass(slots=True)
class Batch:
    """What is committed together."""

    updates: list[StagedUpdate] = field(default_factory=list)
    contents: dict[tuple[int, ContentId], bytes] = field(default_factory=dict)
    """By the number of the document that names them, and their ids."""
    records: dict[EntityId, bytes] = field(default_factory=dict)
    settings: dict[str, JsonValue] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.updates or self.contents or self.records or self.settings)


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a client's updates fork: its signer has signed two different ones for the same clocks.

    ``one`` and ``other`` are the envelopes, which prove it to everybody. What the client wrote from ``clock`` on does
    not count. Both are empty where nothing counts since the signer has forked too many others.
    """

    client: int
    clock: int
    signer: EntityId
    one: bytes
    other: bytes
