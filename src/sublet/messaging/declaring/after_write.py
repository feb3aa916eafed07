"""What a hook may do after something was accepted: tell events, feed indexes, write elsewhere (ezagent 2.2).

Rules: the change itself can't be changed any more, nor refused. A hook writes only where the change was made, or each
peer would repeat it, and never what it was called for, or it would call itself. Weak: a hook that fails is logged, and
what it should have made is missing here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nacl.signing import VerifyKey

from sublet.messaging.declaring.reads_rooms import ReadsEpochs, ReadsRooms
from sublet.messaging.events.events import Events
from sublet.messaging.identities.epochs import Epochs
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.ports.store import Store
from sublet.messaging.purging.purges import Purges
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.changes import Happened
from sublet.messaging.schema.fields import Fields, Written
from sublet.messaging.sealing.room_seals import RoomSeals
from sublet.messaging.texts.texts import Texts
from sublet.messaging.writing.later import Later
from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent.ids import EntityId, RefId
from sublet.protocol.ezagent.keys import parse_doc_id
from sublet.protocol.ezagent.room.state import RoomState


class HookViolation(RuntimeError):
    """A hook did what its phase forbids: a fault of the extension, never of the user."""


@dataclass(frozen=True, slots=True)
class ChangeParts:
    """The parts that such a hook uses, by way of its context.

    ``missing`` is told of documents that something refers to and that are not here.
    """

    store: Store
    rooms: RoomStates
    here: RoomsHere
    documents: OpenDocuments
    reading: Reading
    texts: Texts
    keyring: Keyring
    epochs: Epochs
    events: Events
    later: Later
    purges: Purges
    seals: RoomSeals
    missing: list[Callable[[str], None]]
    now_ms: Callable[[], int]


class AfterWrite(ReadsRooms, ReadsEpochs):
    """After something was accepted: tell events, feed indexes, start tasks, and write elsewhere where it was made.

    The change itself can't be changed any more, nor refused.
    """

    _parts: ChangeParts

    def __init__(self, parts: ChangeParts, change: Happened, hook_id: str, *, may_write: bool) -> None:
        self._parts = parts
        self._hook_id = hook_id
        self._may_write = may_write
        self.change = change

    @property
    def room(self) -> RoomState | None:
        """Return the state of the room that was written to."""
        return self._parts.rooms.state(self.change.room_id) if self.change.room_id is not None else None

    @property
    def now_ms(self) -> int:
        """Return the time, Unix milliseconds, by our clock: for what nobody else has to agree on."""
        return self._parts.now_ms()

    def rank(self, ref_id: RefId | None = None) -> int:
        """Return the rank of the new ref that the hook was called for, or of another one; 0 where that is not here."""
        name, item = self.change.doc_id, self.change.item
        if ref_id is not None:
            found = self._parts.store.find_entry(ref_id)
            if found is None:
                return 0
            name, item = found[0].doc_id, found[1]
        node = self._parts.documents.open(name).elements.node(item)
        return node.rank if node is not None else 0

    def emit(self, kind: str, data: dict[str, JsonValue]) -> None:
        """Tell an event; its room is added."""
        room = self.change.room_id
        tell = self._parts.events.mention if self.change.passing else self._parts.events.tell
        tell(kind, room, {"room_id": room, **data} if room is not None else data)

    def index(self, entries: Iterable[IndexEntry]) -> None:
        """Write entries of an index."""
        self._parts.store.put_index(list(entries))

    def unindex(self, index: str, key: str, rank: str) -> None:
        """Remove an entry of an index."""
        self._parts.store.drop_index(index, key, rank)

    def said_otherwise(self, ref_id: RefId) -> None:
        """Have it forgotten by which words a message is found, until it is read anew."""
        self._parts.store.search.doubt(ref_id)

    def element_counts(self) -> bool:
        """Tell whether the new element that the hook was called for counts."""
        document = self._parts.documents.open(self.change.doc_id)
        node = document.elements.node(self.change.item)
        return node is not None and self._parts.reading.counts(document, node)

    def signers(self, doc_id: str) -> set[EntityId]:
        """Return who has written a document."""
        row = self._parts.store.find_document(doc_id)
        return {signer for _, signer in self._parts.store.clients(row.number).values()} if row is not None else set()

    def follows(self, doc_id: str, entry_id: str, other: str) -> bool:
        """Tell whether an element of an array document stands behind another; it does where there is no other."""
        chain = self._parts.documents.open(doc_id).elements.chain
        node, before = chain.by_entry.get(entry_id), chain.by_entry.get(other)
        if node is None or before is None or node is chain.tail:
            return node is not None
        return node is not before and chain.precedes(before, node)

    def keys(self, entity: EntityId) -> tuple[VerifyKey, ...] | None:
        """Return the keys that sign for an entity; None where it is not known."""
        return self._parts.keyring.keys(entity)

    def read_ref(self, ref_id: RefId) -> Fields | None:
        """Return a ref as it counts, without contents; None where there is none."""
        return self._parts.reading.ref(ref_id)

    def want(self, doc_id: str) -> None:
        """Have a document asked for that something refers to, where it is not here."""
        is_gone = self._parts.documents.is_gone(parse_doc_id(doc_id), doc_id)
        if self._parts.store.find_document(doc_id) is None and not is_gone:
            for listener in self._parts.missing:
                listener(doc_id)

    def counts(self, path: tuple[str, ...] | None = None) -> bool:
        """Tell whether a change of a map or a text counts by its writer rule; taken as one of ``path`` if given."""
        change = self.change
        document = self._parts.documents.open(change.doc_id)
        return self._parts.reading.write_counts(document, path or change.path, change.signer, change.item, first=False)

    def learn_epoch(self, entity: EntityId, epoch: str, signed_ms: int) -> None:
        """Keep an epoch that an entity has signed at a time of its own, unless a later one is known."""
        self._parts.epochs.learn(entity, bytes.fromhex(epoch), signed_ms)

    def ours(self) -> list[EntityId]:
        """Return the entities of this daemon."""
        return list(self._parts.keyring.local)

    def rooms_of(self, entity: EntityId) -> list[RoomState]:
        """Return the rooms that an entity is a member of."""
        return self._parts.here.of(entity)

    def reconsider_purges(self) -> None:
        """Decide anew what is gone of a room, since its config has changed."""
        change = self.change
        if change.room_id is not None and change.after is not None:
            self._parts.purges.reconsider(change.room_id, change.before, change.after)

    def settle_purge(self, ref_id: RefId) -> None:
        """Decide anew what is gone of a message, since what was said of it was taken back."""
        if self.change.room_id is not None:
            self._parts.purges.settle(self.change.room_id, ref_id)

    def names_file(self, value: object) -> None:
        """Note that the new message names a file, which stays as long as a message does that is not purged."""
        change = self.change
        if change.room_id is not None and change.entry_id is not None:
            self._parts.purges.names_file(change.room_id, change.entry_id, value)

    def changes_readers(self) -> None:
        """Note that others may be members of the room than before, who are to have its keys."""
        if self.change.room_id is not None:
            self._parts.seals.changed(self.change.room_id, local=self.change.local)

    def says_of_keys(self) -> None:
        """Take what a member says of the keys of its room."""
        if self.change.room_id is not None:
            self._parts.seals.came(self.change.room_id, dict(self.change.fields))

    def write_field(self, doc_id: str, target: RefId | None, path: tuple[str, ...], value: Written) -> None:
        """Write a field of something else, as the entity that made this change.

        Raises:
            HookViolation: the hook has not said that it writes, the change came from elsewhere, or it is what triggered
                the hook.
        """
        if not self._may_write or not self.change.local:
            raise HookViolation(f"{self._hook_id} writes, but may not here")
        if doc_id == self.change.doc_id and target == self.change.entry_id and path[:1] == self.change.path[:1]:
            raise HookViolation(f"{self._hook_id} changes what it was called for")
        self._parts.later.set_field(self.change.signer, doc_id, target, path, value)
