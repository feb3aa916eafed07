"""What the engine needs of a database (ezagent 3): interfaces, and the rows they carry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from sublet.messaging.ports.invitation_store import InvitationStore
from sublet.messaging.ports.purge_store import PurgeStore
from sublet.messaging.ports.rank_store import RankStore
from sublet.messaging.ports.removal_store import RemovalStore
from sublet.messaging.ports.rows import (
    Batch,
    DeletionRow,
    DocumentRow,
    EntryRow,
    EventRow,
    Fork,
    IndexEntry,
    WriteRow,
)
from sublet.messaging.ports.search_store import SearchStore
from sublet.messaging.ports.tree_store import TreeStore
from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent.digest_tree import Head
from sublet.protocol.ezagent.ids import ContentId, EntityId, RefId, RoomId
from sublet.protocol.ezagent.yjs.update import Deletion, ItemId


class TrustStore(Protocol):
    """The chain of each client's updates, and forks of it."""

    def forks(self, document: int) -> list[Fork]:
        """Return where clients of a document fork, by client."""

    def put_fork(self, document: int, fork: Fork) -> None:
        """Keep where a client forks, in place of what was known; inside a transaction."""

    def rewind(self, document: int, clocks: Mapping[int, int]) -> list[tuple[int, bytes]]:
        """Forget a document's log from the first update of some clients beyond a clock on; inside a transaction.

        Args:
            document: its number.
            clocks: by client, up to where its updates are kept.

        Returns:
            The envelopes of all others that were forgotten, with their numbers, to be taken again.
        """

    def update_at(self, document: int, client: int, clock: int) -> bytes | None:
        """Return the envelope in which a client wrote a clock."""

    def head(self, document: int, client: int, until: int | None = None) -> bytes | None:
        """Return a client's head, at the end of the update that ends at ``until`` or of its last."""

    def heads(self, document: int) -> dict[int, Head]:
        """Return the head of every client of a document."""

    def strangers(self, room_id: RoomId) -> dict[EntityId, tuple[int, int]]:
        """Return how many updates and bytes are kept of those whose updates did not count."""

    def put_stranger(self, room_id: RoomId, signer: EntityId, updates: int, size: int) -> None:
        """Keep how much that is; nothing where it is none."""

    def writers(self, room_id: RoomId) -> set[EntityId]:
        """Return who has written into any document of a room but its config."""

    def documents_of(self, room_id: RoomId, is_theirs: Callable[[EntityId], bool]) -> int:
        """Return into how many documents of a room certain entities have written."""

    def usage(self) -> dict[tuple[RoomId, str], int]:
        """Return how many bytes are kept, by room, or an empty text for none, and by home of who wrote them."""

    def put_usage(self, room_id: RoomId, home: str, size: int) -> None:
        """Keep how many bytes are kept of a daemon in a room; inside a transaction."""

    def is_deleted(self, document: int, signer: EntityId, cut: Deletion, before: int, last: int | None = None) -> bool:
        """Tell whether one deletion of a signer, in an update that only deletes, already covers a range.

        Others may not count, and what does not count covers nothing.

        Args:
            document: its number.
            signer: who deletes.
            cut: the range.
            before: number in the log before which that was.
            last: how many of the newest deletions of this signer and client are looked at; None for all.
        """

    def writes_between(self, document: int, client: int, clock: int, length: int) -> list[WriteRow]:
        """Return the later writes of a range of a client's clocks."""


class Store(Protocol):
    """The database: an append-only signed log and the index that decoded updates feed. Used by one thread."""

    @property
    def trust(self) -> TrustStore:
        """Return what is kept about whom to trust."""

    @property
    def tree(self) -> TreeStore:
        """Return what rooms are compared by."""

    @property
    def ranks(self) -> RankStore:
        """Return what keeps where messages stand."""

    @property
    def search(self) -> SearchStore:
        """Return what finds messages by their words."""

    @property
    def removal(self) -> RemovalStore:
        """Return what removes rooms."""

    @property
    def purges(self) -> PurgeStore:
        """Return what is gone for good."""

    @property
    def invitations(self) -> InvitationStore:
        """Return what keeps rooms that ours are invited to."""

    def document(self, doc_id: str, room_id: RoomId | None, kind: str) -> DocumentRow:
        """Return a document, made if it is new."""

    def find_document(self, doc_id: str) -> DocumentRow | None:
        """Return a document if it is kept."""

    def numbered(self, number: int) -> DocumentRow | None:
        """Return a document by its number; None where it is gone."""

    def documents(self, room_id: RoomId, kind: str) -> list[DocumentRow]:
        """Return a room's documents of one kind, in the order of their ids."""

    def rooms(self) -> list[RoomId]:
        """Return every room with a config here."""

    def clients(self, document: int) -> dict[int, tuple[int, EntityId]]:
        """Return for every client of a document its next clock and its signer."""

    def clients_of(self, room_id: RoomId, signer: EntityId | None) -> dict[str, dict[int, int]]:
        """Return the next clocks of an entity's clients, or of all, by document of a room."""

    def has_entries(self, document: int) -> bool:
        """Tell whether a document has any element."""

    def count_entries(self, document: int) -> int:
        """Return how many elements a document has."""

    def entries(self, document: int) -> list[EntryRow]:
        """Return the elements of a document in the order in which they were accepted."""

    def find_entry(self, entry_id: RefId) -> tuple[DocumentRow, ItemId] | None:
        """Return where a ref of this id stands, the same one on all replicas where its author gave it twice."""

    def hidden_entries(self, signers: Iterable[EntityId]) -> list[tuple[DocumentRow, EntryRow]]:
        """Return elements of these signers that were never shown."""

    def mark_shown(self, items: Iterable[tuple[int, ItemId]]) -> None:
        """Note that elements (document and item) are shown now."""

    def writes(self, document: int, entry: ItemId | None) -> list[WriteRow]:
        """Return the later writes of one element, or all of a map document, in the order of acceptance."""

    def find_write(self, document: int, item: ItemId) -> WriteRow | None:
        """Return a write by the id of its item."""

    def deletions(self, document: int, clients: Iterable[int]) -> list[DeletionRow]:
        """Return what was deleted of some clients' items in a document."""

    def envelope(self, seq: int) -> bytes:
        """Return an envelope of the log."""

    def log_after(self, document: int, have: dict[int, int], limit_bytes: int) -> tuple[list[bytes], bool]:
        """Return envelopes beyond a state vector in the order of acceptance, and whether there are more.

        Of those that only delete some are left out where there are many, others each time.
        """

    def updates_after(self, document: int, have: dict[int, int], limit_bytes: int) -> tuple[list[bytes], bool]:
        """Return those of ``log_after`` that add something."""

    def deleting_after(self, document: int, seq: int, limit: int) -> list[tuple[int, bytes]]:
        """Return envelopes that only delete, with their numbers in the log, in the order of acceptance."""

    def last_seq(self) -> int:
        """Return the highest number in the log, 0 where it is empty."""

    def content(self, room_id: RoomId, content_id: ContentId, document: int | None = None) -> bytes | None:
        """Return an immutable content of a room as it travels; soonest if the document that names it is told."""

    def records(self) -> dict[EntityId, bytes]:
        """Return every known identity record."""

    def setting(self, name: str) -> JsonValue:
        """Return one of our own settings, None where it was never set."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open; one that was may have been taken back where the disk is full."""

    def transaction(self) -> AbstractContextManager[None]:
        """Make everything that is written inside durable at the end, or none of it."""

    def write(self, batch: Batch) -> None:
        """Write a batch, inside a transaction."""

    def append_events(self, events: Sequence[EventRow], keep: int) -> None:
        """Keep events, and of all only the last ``keep`` and a few more; inside a transaction."""

    def events(self, after: int, limit: int) -> list[EventRow]:
        """Return events after a cursor."""

    def last_cursor(self) -> int:
        """Return the highest cursor ever given."""

    def put_index(self, entries: Sequence[IndexEntry]) -> None:
        """Write entries of indexes, in place of those with the same index, key and rank."""

    def scan_index(self, index: str, key: str, limit: int, below: str | None = None) -> list[IndexEntry]:
        """Return an index's entries of a key, highest rank first; only those of a lower rank than ``below``."""

    def drop_index(self, index: str, key: str, rank: str) -> None:
        """Remove one entry."""

    def find_refs(self, ref_ids: Iterable[RefId]) -> dict[RefId, tuple[DocumentRow, ItemId]]:
        """Return where each of these refs stands; see ``find_entry``."""

    def close(self) -> None:
        """Close the database."""
