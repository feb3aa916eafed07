"""What a hook of each phase may do, and nothing else (ezagent 2.2): what it may not do, its context does not offer.

All run on the engine's thread, so none of them may wait for anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nacl.signing import SigningKey, VerifyKey

from sublet.messaging.declaring.declaration import AnnotationPlace, Change
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.ports.store import IndexEntry
from sublet.messaging.reading.authorise import document_write_counts
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.content import parse_content
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId, own_ref_id
from sublet.protocol.ezagent.room.state import RoomState
from sublet.protocol.ezagent.yjs.model import ItemId

if TYPE_CHECKING:
    from sublet.messaging.engine.engine import Engine


class HookViolation(RuntimeError):
    """A hook did what its phase forbids: a fault of the extension, never of the user."""


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
    fields: Mapping[str, Any] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    value: Any = None
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
    fields: dict[str, Any]
    target: RefId | None = None


class PreSend:
    """Before something is written and signed: change it, annotate it, refuse it.

    There is no way from here to the network, nor to data that is not written yet.
    """

    def __init__(self, engine: Engine, intent: Intent, contents: dict[str, bytes]) -> None:
        self._engine = engine
        self._contents = contents
        self.intent = intent

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields that will be written, to be changed in place."""
        return self.intent.fields

    @property
    def room(self) -> RoomState | None:
        """Return the state of the room that is written to."""
        return self._engine.rooms.state(self.intent.room_id) if self.intent.room_id is not None else None

    @property
    def now_ms(self) -> int:
        """Return the time, Unix milliseconds."""
        return self._engine.now_ms()

    def annotate(self, name: str, value: Any) -> None:
        """Put a value into the namespace ``ext.{name}``."""
        self.intent.fields[f"ext.{name}"] = value

    def refuse(self, message: str, hint: str = "", code: LocalCode = LocalCode.INVALID_ARGUMENT) -> SubletError:
        """Return the error to raise, which keeps all of it from being written."""
        return SubletError(code, message, hint)

    def keep_blob(self, data: bytes) -> str:
        """Keep a file under its hash, once for however many rooms name it; return the hash, in hex.

        Raises:
            SubletError: ``UNAVAILABLE``: there is no space for it.
        """
        return self._engine.keep_blob(data)

    def attach_content(self, content_id: str, raw: bytes) -> None:
        """Add an immutable content that is written with it."""
        self._contents[content_id] = raw

    def has_content(self, content_id: str) -> bool:
        """Tell whether an immutable content is here, or comes with it."""
        room = self.intent.room_id
        return content_id in self._contents or (
            room is not None and self._engine.store.content(room, content_id) is not None
        )

    def content(self, content_id: str) -> dict[str, JsonValue] | None:
        """Return an immutable content that is written with it, or is here; None where there is none."""
        raw = self._contents.get(content_id)
        if raw is not None:
            return parse_content(raw)
        room = self.intent.room_id
        return self._engine.reading.content(room, content_id) if room is not None else None

    def read_ref(self, room_id: RoomId, ref_id: RefId) -> dict[str, Any] | None:
        """Return a ref of a room that the author is a member of; None where there is none."""
        if not self._engine.is_member(self.intent.entity, room_id):
            return None
        return self._engine.reading.ref_in(room_id, ref_id)

    def new_ref_id(self) -> RefId:
        """Return an id for a ref of the author in this room, which nobody else may use."""
        number = next(self._engine.ref_numbers)
        return own_ref_id(self._engine.now_ms(), str(self.intent.room_id), self.intent.entity, number)

    def read_document(self, doc_id: str) -> dict[str, Any]:
        """Return a map document as it counts."""
        return self._engine.reading.map_document(doc_id)

    def counts(self) -> bool:
        """Tell whether what is about to be written into a text would count."""
        return self._engine.texts.may(self.intent.entity, self.intent.doc_id)

    def epoch_of(self, entity: EntityId) -> str | None:
        """Return the epoch of an entity's daemon, as it is known last."""
        epoch = self._engine.epochs.of(entity)
        return epoch.hex() if epoch is not None else None

    def author_key(self) -> SigningKey:
        """Return the key that the author signs with."""
        return self._engine.key(self.intent.entity)

    def shared_annotations(self, enabled: tuple[str, ...]) -> list[str]:
        """Return the annotations on refs that are shared maps, of built-ins and of enabled extensions."""
        return self._engine.registry.shared_on(AnnotationPlace.ON_REF, enabled)

    def sign_ref(self) -> None:
        """Put the author's signature of the ref into its fields; only built-ins come late enough to ask for it."""
        self._engine.writing.sign_ref(self.intent)


class AfterWrite:
    """After something was accepted: tell events, feed indexes, start tasks, and write elsewhere where it was made.

    The change itself can't be changed any more, nor refused.
    """

    def __init__(self, engine: Engine, change: Happened, hook_id: str, *, may_write: bool) -> None:
        self._engine = engine
        self._hook_id = hook_id
        self._may_write = may_write
        self.change = change

    @property
    def room(self) -> RoomState | None:
        """Return the state of the room that was written to."""
        return self._engine.rooms.state(self.change.room_id) if self.change.room_id is not None else None

    def emit(self, kind: str, data: dict[str, JsonValue]) -> None:
        """Tell an event; its room is added."""
        room = self.change.room_id
        tell = self._engine.events.mention if self.change.passing else self._engine.events.tell
        tell(kind, room, {"room_id": room, **data} if room is not None else data)

    def index(self, entries: Iterable[IndexEntry]) -> None:
        """Write entries of an index."""
        self._engine.store.put_index(list(entries))

    def unindex(self, index: str, key: str, rank: str) -> None:
        """Remove an entry of an index."""
        self._engine.store.drop_index(index, key, rank)

    def scan_index(self, index: str, key: str, limit: int, below: str | None = None) -> list[IndexEntry]:
        """Return entries of an index, highest rank first; only those of a lower rank than ``below``."""
        return self._engine.store.scan_index(index, key, limit, below)

    def element_counts(self) -> bool:
        """Tell whether the new element that the hook was called for counts."""
        document = self._engine.document(self.change.doc_id)
        node = document.list.nodes.get(self.change.item)
        return node is not None and self._engine.reading.counts(document, node)

    def elements(self, doc_id: str) -> list[dict[str, Any]]:
        """Return the elements of an array document that count, in order."""
        if self._engine.store.find_document(doc_id) is None:
            return []
        return list(self._engine.reading.elements(self._engine.document(doc_id)))

    def signers(self, doc_id: str) -> set[EntityId]:
        """Return who has written a document."""
        row = self._engine.store.find_document(doc_id)
        return {signer for _, signer in self._engine.store.clients(row.number).values()} if row is not None else set()

    def follows(self, doc_id: str, entry_id: str, other: str) -> bool:
        """Tell whether an element of an array document stands behind another; it does where there is no other."""
        chain = self._engine.document(doc_id).list
        node, before = chain.by_entry.get(entry_id), chain.by_entry.get(other)
        if node is None or before is None or node is chain.tail:
            return node is not None
        return node is not before and chain.precedes(before, node)

    def keys(self, entity: EntityId) -> tuple[VerifyKey, ...] | None:
        """Return the keys that sign for an entity; None where it is not known."""
        return self._engine.keyring.keys(entity)

    def read_ref(self, ref_id: RefId) -> dict[str, Any] | None:
        """Return a ref as it counts, without contents; None where there is none."""
        return self._engine.reading.ref(ref_id)

    def text(self, doc_id: str) -> str:
        """Return the text of a document as it counts."""
        return self._engine.texts.read(doc_id)

    def read_document(self, doc_id: str) -> dict[str, Any]:
        """Return a map document as it counts."""
        return self._engine.reading.map_document(doc_id)

    def want(self, doc_id: str) -> None:
        """Have a document asked for that something refers to, where it is not here."""
        if self._engine.store.find_document(doc_id) is None:
            for listener in self._engine.document_listeners:
                listener(doc_id)

    def counts(self, path: tuple[str, ...] | None = None) -> bool:
        """Tell whether a change of a map or a text counts by its writer rule; taken as one of ``path`` if given."""
        change = self.change
        document = self._engine.document(change.doc_id)
        return document_write_counts(
            self._engine, document, path or change.path, change.signer, change.item, first=False
        )

    def epoch_of(self, entity: EntityId) -> str | None:
        """Return the epoch of an entity's daemon, as it is known last."""
        epoch = self._engine.epochs.of(entity)
        return epoch.hex() if epoch is not None else None

    def learn_epoch(self, entity: EntityId, epoch: str, signed_ms: int) -> None:
        """Keep an epoch that an entity has signed at a time of its own, unless a later one is known."""
        self._engine.epochs.learn(entity, bytes.fromhex(epoch), signed_ms)

    def ours(self) -> list[EntityId]:
        """Return the entities of this daemon."""
        return list(self._engine.keyring.local)

    def rooms_of(self, entity: EntityId) -> list[RoomState]:
        """Return the rooms that an entity is a member of."""
        return self._engine.rooms_of(entity)

    def write_field(self, doc_id: str, target: RefId | None, path: tuple[str, ...], value: Any) -> None:
        """Write a field of something else, as the entity that made this change.

        Raises:
            HookViolation: the hook has not said that it writes, the change came from elsewhere, or it is what triggered
                the hook.
        """
        if not self._may_write or not self.change.local:
            raise HookViolation(f"{self._hook_id} writes, but may not here")
        if doc_id == self.change.doc_id and target == self.change.entry_id and path[:1] == self.change.path[:1]:
            raise HookViolation(f"{self._hook_id} changes what it was called for")
        self._engine.set_after_commit(self.change.signer, doc_id, target, path, value)


class AfterRead:
    """After data was read, before it is answered: add to the answer; what is stored stays as it is.

    ``query`` says which view of an extension the reader asks for, such as ``{"thread": ref_id}``. ``quoted`` tells that
    the items are shown inside those of another room, where nothing may quote any further; ``page`` that they follow
    each other in the room, as who reads it from top to bottom sees them.
    """

    def __init__(
        self,
        engine: Engine,
        datatype: str,
        reader: EntityId,
        room_id: RoomId,
        items: list[dict[str, Any]],
        query: Mapping[str, str] | None = None,
        *,
        quoted: bool = False,
        page: bool = False,
    ) -> None:
        self._engine = engine
        self.datatype = datatype
        self.reader = reader
        self.room_id = room_id
        self.items = items
        self.query: Mapping[str, str] = query or {}
        self.quoted = quoted
        self.page = page

    @property
    def room(self) -> RoomState:
        """Return the room's state."""
        return self._engine.rooms.state(self.room_id)

    @property
    def cursor(self) -> int:
        """Return the cursor of the last event before this was read."""
        return self._engine.events.cursor

    def content_of(self, ref: Mapping[str, Any]) -> dict[str, JsonValue] | None:
        """Return the immutable content that a ref names; None where it is not here."""
        return self._engine.reading.content_of(ref)

    def read_document(self, doc_id: str) -> dict[str, Any]:
        """Return a map document as it counts."""
        return self._engine.reading.map_document(doc_id)

    def text(self, doc_id: str) -> str:
        """Return the text of a document as it counts."""
        return self._engine.texts.read(doc_id)

    def elements(self, doc_id: str) -> list[dict[str, Any]]:
        """Return the elements of an array document that count, in order."""
        if self._engine.store.find_document(doc_id) is None:
            return []
        return list(self._engine.reading.elements(self._engine.document(doc_id)))

    def read_refs(self, ref_ids: Iterable[RefId]) -> list[dict[str, Any]]:
        """Return refs as they count, those that are here."""
        found = (self._engine.reading.ref(ref_id) for ref_id in ref_ids)
        return [ref for ref in found if ref is not None]

    def counting(self, ref_ids: Iterable[RefId]) -> set[RefId]:
        """Return those of some refs that are in this room and count; costs less than to read them."""
        return self._engine.reading.counting(self.room_id, ref_ids)

    def scan_index(self, index: str, key: str, limit: int, below: str | None = None) -> list[IndexEntry]:
        """Return entries of an index, highest rank first; only those of a lower rank than ``below``."""
        return self._engine.store.scan_index(index, key, limit, below)

    def quote(self, room_id: RoomId, ref_id: RefId) -> dict[str, Any] | None:
        """Return a ref of any room as the reader sees it there; None where the reader sees none."""
        return self._engine.reading.quoted(self.reader, room_id, ref_id)

    def write_back(self, write: Callable[[OperationContext], object]) -> None:
        """Write as the reader, once what is being read is answered; by then other such writes may have been made."""
        self._engine.after_commit(lambda: write(OperationContext(self._engine, self.reader)))
