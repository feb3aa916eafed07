"""Documents that are open in memory, made from the store when they are needed.

Rules: an update from the wire opens a document only where somebody here wants it and a declaration says what it holds.
What is opened and lacks what was here is told, and ours write under other clocks from then on.
Memory is bounded by documents, by their elements and by their writers; a document with anything that is only in memory
stays open.
Weak: a document of one full shard is read as a whole when it is opened.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from sublet.messaging.documents.document import Document
from sublet.messaging.documents.in_memory import InMemory
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.opening.accepted_updates import AcceptedUpdates
from sublet.messaging.ports.purge_store import Kind
from sublet.messaging.ports.store import Store
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.schema.datatypes import Datatype
from sublet.messaging.schema.schema import Schema
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.keys import DocumentPlace, parse_doc_id
from sublet.protocol.ezagent.shards import REFS_PER_SHARD

MAX_OPEN_DOCUMENTS: Final = 256
"""More than a page of messages has, of which each may have been edited and so has a document of its own."""
MAX_OPEN_ELEMENTS: Final = 8 * REFS_PER_SHARD
"""Elements in memory, of all open documents: a few full shards, however long a room is."""
MAX_OPEN_CLIENTS: Final = 1 << 16
"""Writers in memory, of all open documents, each as often as documents have it."""
_GROWTH: Final = 4
"""Where documents can't be closed yet, all are looked at again once there are one in so many more."""
_CLOSED_AT_ONCE: Final = MAX_OPEN_DOCUMENTS // 8
"""Beyond the bound so many more are closed, so that not each one that is opened has others looked at."""


class OpenDocuments:
    """Open documents by their ids, the one that was used last at the end.

    Args:
        store: where documents are kept.
        schema: what each of them holds.
        updates: the log's updates, decoded.
        keyring: which entities are ours.
        here: whose updates are wanted.
    """

    def __init__(
        self, store: Store, schema: Schema, updates: AcceptedUpdates, keyring: Keyring, here: RoomsHere
    ) -> None:
        self._store = store
        self._schema = schema
        self._updates = updates
        self._keyring = keyring
        self._here = here
        self._open: OrderedDict[str, Document] = OrderedDict()
        self._counted = InMemory()
        self._most = _bounds()
        """Documents, elements and writers beyond which some are closed; more than the bounds where all have to stay."""
        self.shard_opened: list[Callable[[RoomId], None]] = []
        """Told of rooms of which a shard is opened, which may be new."""
        self.lacking: list[Callable[[str], None]] = []
        """Told of documents of which something is not here that was."""
        self.closed: list[Callable[[], None]] = []
        """Told when a document was closed to be read anew: what was made from it is out of date."""

    def open(self, name: str) -> Document:
        """Return an open document, made if it is new.

        Raises:
            SubletError: ``INVALID_ARGUMENT``: the id of no document.
        """
        found = self._open.get(name)
        if found is not None:
            self._open.move_to_end(name)
            return found
        try:
            place = parse_doc_id(name)
        except Refused as refused:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"no document: {refused.detail}") from None
        return self._load(name, place)

    def wanted(self, name: str) -> Document:
        """Return the document that an update from the wire is for.

        Raises:
            Refused: ``UNKNOWN_DOCUMENT``: nobody here wants it, or nothing declares it.
        """
        found = self._open.get(name)
        if found is not None and found.place.kind != "draft":
            self.refuse_gone(found.place, name)
            self._open.move_to_end(name)
            return found
        return self._load(name, self.wanted_place(name))

    def refuse_gone(self, place: DocumentPlace, name: str) -> None:
        """Refuse a document that is gone for good.

        Raises:
            Refused: ``PURGED``.
        """
        if self.is_gone(place, name):
            raise Refused(Refusal.PURGED, "a document that is gone for good")

    def is_gone(self, place: DocumentPlace, name: str) -> bool:
        """Tell whether a document is gone for good."""
        if place.room_id is None:
            return False
        purges = self._store.purges
        if place.kind == "content":
            return purges.is_gone(place.room_id, Kind.DOCUMENT, name)
        return place.kind == "blob_ref" and purges.is_gone(place.room_id, Kind.FILE, place.hash or "")

    def wanted_place(self, name: str) -> DocumentPlace:
        """Return what a document's id says, if updates of it are wanted; see ``wanted``."""
        place = parse_doc_id(name)
        if place.kind == "draft":
            wanted = place.entity_id in self._keyring.local and place.room_id in self._here.ids
        elif place.room_id is not None:
            wanted = place.room_id in self._here.ids
        else:
            wanted = place.entity_id is not None and self._here.meets(place.entity_id)
        if not wanted or not self._schema.roots(place.kind, place.ext_id):
            raise Refused(Refusal.UNKNOWN_DOCUMENT, "a document that nobody here wants")
        if self._schema.datatype_at(place.kind, place.ext_id) is None:
            raise Refused(Refusal.UNKNOWN_DOCUMENT, "a document that nothing declares")
        self.refuse_gone(place, name)
        return place

    def is_new(self, name: str) -> bool:
        """Tell whether nothing of a document is here."""
        return name not in self._open and self._store.find_document(name) is None

    def is_open(self, name: str) -> Document | None:
        """Return a document that is open, and leave one that is not as it is."""
        return self._open.get(name)

    def unsettled(self, room_id: RoomId) -> list[Document]:
        """Return the open documents of a room that have taken what is not durable yet."""
        return [one for one in self._open.values() if one.unsettled and one.row.room_id == room_id]

    def datatype_of(self, document: Document) -> Datatype | None:
        """Return the datatype whose document this is."""
        return self._schema.datatype_at(document.place.kind, document.place.ext_id)

    def held_bytes(self) -> int:
        """Return how much waits in all open documents."""
        return self._counted.held_bytes

    def close(self, name: str) -> list[bytes]:
        """Close a document, to be read anew from what is kept; return the envelopes that it held."""
        document = self._pop(name)
        for listener in self.closed:
            listener()
        return [held.envelope.raw for held in document.held] if document is not None else []

    def forget(self) -> None:
        """Close all documents, after a commit that failed."""
        for name in list(self._open):
            self._pop(name)

    def forget_room(self, room_id: RoomId) -> None:
        """Close the documents of a room."""
        for name in [name for name, document in self._open.items() if document.row.room_id == room_id]:
            self._pop(name)

    def _pop(self, name: str) -> Document | None:
        document = self._open.pop(name, None)
        if document is not None:
            document.let_go()
        return document

    def _load(self, name: str, place: DocumentPlace) -> Document:
        found = self._store.find_document(name)
        row = found or self._store.document(name, place.room_id, place.kind)
        if place.kind == "index" and place.room_id is not None:
            for listener in self.shard_opened:
                listener(place.room_id)
        roots = self._schema.roots(place.kind, place.ext_id)
        datatype = self._schema.datatype_at(place.kind, place.ext_id)
        entry_key = datatype.entry_id if datatype is not None else "ref_id"
        document = self._open[name] = Document(
            row,
            place,
            roots,
            self._store,
            self._updates.read,
            entry_key,
            is_new=found is None,
            counted=self._counted,
        )
        if sum(document.vector().values()) < self._store.tree.counted(row):
            # What is gone may be ours: to go on where it seems to end would be to sign other things for its clocks.
            self._keyring.begin_anew()
            for told in self.lacking:
                told(name)
        self._close_idle()
        return document

    def settled(self, batch: int) -> None:
        """Close what a batch of so many updates had to keep open, once it is durable."""
        if len(self._open) > MAX_OPEN_DOCUMENTS and batch * _GROWTH >= len(self._open):
            self._most = _bounds()
            self._close_idle()

    def _close_idle(self) -> None:
        """Close the documents that were used longest ago and have nothing that is only in memory, never the last.

        What can't be closed is not looked at for each document that is opened: a batch of many has to keep all of them.
        """
        here = self._in_memory()
        if all(have <= most for have, most in zip(here, self._most, strict=True)):
            return
        documents, elements, clients = (have - bound for have, bound in zip(here, _bounds(), strict=True))
        wanted = documents + _CLOSED_AT_ONCE if documents > 0 else 0
        idle: list[str] = []
        last = next(reversed(self._open))
        for name, document in self._open.items():
            if len(idle) >= wanted and elements <= 0 and clients <= 0:
                break
            if document.is_idle and name != last:
                idle.append(name)
                elements -= document.elements.in_memory
                clients -= len(document.clients)
        for name in idle:
            self._pop(name)
        short = (len(idle) < wanted, elements > 0, clients > 0)
        grown = (have + have // _GROWTH if lacks else 0 for have, lacks in zip(self._in_memory(), short, strict=True))
        self._most = tuple(map(max, _bounds(), grown))

    def _in_memory(self) -> tuple[int, ...]:
        return len(self._open), self._counted.elements, self._counted.clients


def _bounds() -> tuple[int, ...]:
    return MAX_OPEN_DOCUMENTS, MAX_OPEN_ELEMENTS, MAX_OPEN_CLIENTS
