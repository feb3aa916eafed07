"""The engine: one object that holds the parts together, used by one thread (ezagent 2, DESIGN 6.1)."""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import structlog
from nacl.signing import SigningKey

from sublet.messaging.engine.backend import Store
from sublet.messaging.engine.contexts import Happened
from sublet.messaging.engine.cursors import Cursors
from sublet.messaging.engine.declaration import Change, Datatype
from sublet.messaging.engine.document import Document
from sublet.messaging.engine.ephemeral import Ephemeral
from sublet.messaging.engine.epochs import Epochs
from sublet.messaging.engine.events import Events
from sublet.messaging.engine.heads import HeadExchange
from sublet.messaging.engine.hooks import HookPipeline
from sublet.messaging.engine.intake import Intake
from sublet.messaging.engine.keyring import Keyring, LocalEntity
from sublet.messaging.engine.libraries import BlobRoomError, BlobStore
from sublet.messaging.engine.quotas import Quotas
from sublet.messaging.engine.reading import Reading
from sublet.messaging.engine.registry import Registry
from sublet.messaging.engine.rooms import Rooms
from sublet.messaging.engine.texts import Texts
from sublet.messaging.engine.timeline_shards import TimelineShards
from sublet.messaging.engine.usage import DEFAULT_DAEMON_BYTES, DiskUsage
from sublet.messaging.engine.writing import Writing
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId
from sublet.protocol.ezagent.keys import DocumentPlace, doc_id, parse_doc_id
from sublet.protocol.ezagent.room.state import RoomState
from sublet.protocol.ezagent.shards import REFS_PER_SHARD

log = structlog.get_logger(__name__)

Came: TypeAlias = tuple[RoomId, str, int]
MAX_OPEN_DOCUMENTS: Final = 128
MAX_OPEN_ELEMENTS: Final = 8 * REFS_PER_SHARD
"""Elements in memory, of all open documents: a few full shards, however long a room is."""


class Engine:
    """All parts over one store.

    Args:
        registry: what is declared.
        store: the database.
        local: our own entities.
        now_ms: the clock, Unix milliseconds.
        blobs: keeps files.
        daemon_bytes: of all that the entities of one other daemon have written, in all rooms.
    """

    def __init__(
        self,
        registry: Registry,
        store: Store,
        local: list[LocalEntity],
        now_ms: Callable[[], int],
        blobs: BlobStore,
        daemon_bytes: int = DEFAULT_DAEMON_BYTES,
    ) -> None:
        self.registry = registry
        self.store = store
        self.now_ms = now_ms
        self.keyring = Keyring(store, local)
        self.epochs = Epochs(store, self.keyring)
        self.rooms = Rooms(store)
        self.events = Events(store)
        self.cursors = Cursors(store, self.events)
        self.hooks = HookPipeline(registry)
        self.shards = TimelineShards(self)
        self.reading = Reading(self)
        self.writing = Writing(self)
        self.texts = Texts(self)
        self.blobs = blobs
        self.ephemeral = Ephemeral(self)
        self.usage = DiskUsage(store, daemon_bytes)
        self.quotas = Quotas(self)
        self.intake = Intake(self)
        self.heads = HeadExchange(self)
        self.ref_numbers = itertools.count(int.from_bytes(os.urandom(2), "big"))
        """Tell apart the refs of one millisecond."""
        self._open: OrderedDict[str, Document] = OrderedDict()
        self._wanted_rooms: set[RoomId] = set(store.rooms())
        self.room_listeners: list[Callable[[RoomId], None]] = []
        self.document_listeners: list[Callable[[str], None]] = []
        """Told of documents that something refers to and that are not here."""
        self.arrival_listeners: list[Callable[[frozenset[Came]], None]] = []
        """Told what others wrote, as room, part of it and client, once it is durable."""
        self._later: list[Callable[[], object]] = []
        self._fields_later: dict[tuple[EntityId, str, RefId | None, tuple[str, ...]], Any] = {}

    def commit(self) -> None:
        """Write what waits, make everything durable, and run what hooks have put off."""
        self.writing.flush()
        self.intake.commit()
        while self._later:
            later, self._later = self._later, []
            for run in later:
                try:
                    run()
                except SubletError as error:  # a hook's own write; whoever made the first one has its answer
                    log.warning("what a hook wrote was refused", error=str(error))
            self.writing.flush()
            self.intake.commit()

    def keep_blob(self, data: bytes) -> str:
        """Keep a file under its hash, and return that, in hex.

        Raises:
            SubletError: ``UNAVAILABLE``: there is no space for it.
        """
        try:
            return self.blobs.put(data)
        except (BlobRoomError, OSError) as error:
            raise SubletError(LocalCode.UNAVAILABLE, f"the file can't be kept: {error}", "Make room for it.") from None

    def set_after_commit(
        self, entity: EntityId, doc_id: str, target: RefId | None, path: tuple[str, ...], value: Any
    ) -> None:
        """Put off writing a field until what is being written is durable; of several values the last one is written."""
        key = (entity, doc_id, target, path)
        if key not in self._fields_later:
            self.after_commit(lambda: self.writing.set_field(*key, self._fields_later.pop(key)))
        self._fields_later[key] = value

    def after_commit(self, run: Callable[[], object]) -> None:
        """Put something off until what is being written is durable."""
        self._later.append(run)

    def key(self, entity: EntityId) -> SigningKey:
        """Return the key of one of our own entities."""
        return self._local(entity).key

    def client(self, entity: EntityId) -> int:
        """Return the Yjs client id of one of our own entities in this process."""
        return self._local(entity).client

    def add_entity(self, entity: LocalEntity) -> None:
        """Let another entity of ours write."""
        self.keyring.add(entity)

    def want_room(self, room_id: RoomId) -> None:
        """Accept updates of a room from now on."""
        if room_id not in self._wanted_rooms:
            self._take_up_again(room_id)
            self._wanted_rooms.add(room_id)
            for listener in self.room_listeners:
                listener(room_id)

    @property
    def wanted_rooms(self) -> set[RoomId]:
        """Return the rooms whose updates are accepted."""
        return self._wanted_rooms

    def rooms_of(self, entity: EntityId) -> list[RoomState]:
        """Return the states of the rooms that an entity is a member of, by id."""
        states = (self.rooms.state(room) for room in sorted(self._wanted_rooms))
        return [state for state in states if state.role(entity) is not None]

    def meets(self, entity: EntityId) -> bool:
        """Tell whether an entity is one of ours, or a member of a room that is here."""
        return entity in self.keyring.local or any(self.is_member(entity, room) for room in self._wanted_rooms)

    def is_member(self, entity: EntityId, room_id: RoomId) -> bool:
        """Tell whether an entity is a member of a room that is here; ``room_id`` may be whatever somebody wrote."""
        return room_id in self._wanted_rooms and self.rooms.state(room_id).role(entity) is not None

    def datatype_of(self, document: Document) -> Datatype | None:
        """Return the datatype whose document this is."""
        return self.registry.datatype_at(document.place.kind, document.place.ext_id)

    def document(self, name: str) -> Document:
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

    def wanted_document(self, name: str) -> Document:
        """Return the document that an update from the wire is for.

        Raises:
            Refused: ``UNKNOWN_DOCUMENT``: nobody here wants it, or nothing declares it.
        """
        found = self._open.get(name)
        if found is not None and found.place.kind != "draft":
            self._open.move_to_end(name)
            return found
        return self._load(name, self.wanted_place(name))

    def is_new(self, name: str) -> bool:
        """Tell whether nothing of a document is here."""
        return name not in self._open and self.store.find_document(name) is None

    def wanted_place(self, name: str) -> DocumentPlace:
        """Return what a document's id says, if updates of it are wanted; see ``wanted_document``."""
        place = parse_doc_id(name)
        if place.kind == "draft":
            wanted = place.entity_id in self.keyring.local and place.room_id in self._wanted_rooms
        elif place.room_id is not None:
            wanted = place.room_id in self._wanted_rooms
        else:
            wanted = place.entity_id is not None and self.meets(place.entity_id)
        if not wanted or not self.registry.roots(place.kind, place.ext_id):
            raise Refused(Refusal.UNKNOWN_DOCUMENT, "a document that nobody here wants")
        if self.registry.datatype_at(place.kind, place.ext_id) is None:
            raise Refused(Refusal.UNKNOWN_DOCUMENT, "a document that nothing declares")
        return place

    def _load(self, name: str, place: DocumentPlace) -> Document:
        row = self.store.document(name, place.room_id, place.kind)
        if place.kind == "index" and place.room_id is not None:
            self.shards.added(place.room_id)
        roots = self.registry.roots(place.kind, place.ext_id)
        datatype = self.registry.datatype_at(place.kind, place.ext_id)
        entry_key = datatype.entry_id if datatype is not None else "ref_id"
        document = self._open[name] = Document(row, place, roots, self.store, self.reading.update, entry_key)
        self._close_idle()
        return document

    def held_bytes(self) -> int:
        """Return how much waits in all open documents."""
        return sum(document.held.size for document in self._open.values())

    def close(self, name: str) -> list[bytes]:
        """Close a document, to be read anew from what is kept; return the envelopes that it held."""
        document = self._open.pop(name, None)
        return [held.envelope.raw for held in document.held] if document is not None else []

    def _close_idle(self) -> None:
        """Close the documents that were used longest ago and have nothing that is only in memory, never the last."""
        elements = sum(len(document.list) for document in self._open.values())
        for name, document in list(self._open.items())[:-1]:
            if len(self._open) <= MAX_OPEN_DOCUMENTS and elements <= MAX_OPEN_ELEMENTS:
                return
            if not document.held and not document.staged_writes and not self.intake.stages(document):
                del self._open[name]
                elements -= len(document.list)

    def forget(self) -> None:
        """Go back to what is durable, after a commit that failed."""
        self._open.clear()
        self._later.clear()
        self._fields_later.clear()
        self.writing.drop_pending()
        self.texts.forget()
        self.rooms.forget()
        self.reading.forget()
        self.quotas.forget()
        self.usage.forget()
        self.events.drop()

    def forget_room(self, room_id: RoomId) -> None:
        """Let go of a room whose removal begins; nothing of it may wait to be written."""
        with self.store.transaction():
            self.store.removal.begin(room_id)
        self._wanted_rooms.discard(room_id)
        for name in [name for name, document in self._open.items() if document.row.room_id == room_id]:
            del self._open[name]
        self.texts.forget()
        self.rooms.changed(room_id)
        self.intake.gathering.drop(room_id)
        self.ephemeral.settle(room_id)
        self.reading.forget()
        self.shards.forget(room_id)
        self.quotas.forget()
        self.usage.drop(room_id)

    def _take_up_again(self, room_id: RoomId) -> None:
        """Let a room that was forgotten be here again, once all of it is gone."""
        if self.store.removal.is_forgotten(room_id):
            with self.store.transaction():
                while self.store.removal.step():
                    pass
                self.store.removal.forgive(room_id)
            self.rooms.changed(room_id)

    def config_changed(self, room_id: RoomId, signer: EntityId, seq: int, *, local: bool) -> None:
        """Decide a room's state anew, tell the hooks, and show what only now counts."""
        before = self.rooms.changed(room_id)
        after = self.rooms.state(room_id)
        self.intake.gathering.decided(room_id)
        config = doc_id("config", room_id=room_id)
        change = Happened(
            "room_config",
            Change.UPDATE,
            config,
            room_id,
            signer,
            (0, 0),
            local=local,
            before=before,
            after=after,
            seq=seq,
        )
        self.hooks.after_write(self, change)
        self.quotas.settle(room_id)
        self.ephemeral.settle(room_id)
        known = set(before.entities) if before is not None else set()
        for entity, membership in after.entities.items():
            earlier = before.entities.get(entity) if before is not None and entity in known else None
            if earlier is None or len(membership.grants) != len(earlier.grants):
                self._show(room_id, entity)

    def _show(self, room_id: RoomId, entity: EntityId) -> None:
        """Tell of refs that were here before their author was a member by what is known now."""
        shown: list[tuple[int, tuple[int, int]]] = []
        for row, entry in self.store.hidden_entries([entity]):
            item = (entry.client, entry.clock)
            part = row.doc_id.split("/", 2)[2]
            if row.room_id != room_id or not self.rooms.counts(room_id, entity, part, item):
                continue
            document = self.document(row.doc_id)
            node = document.list.nodes.get(item)
            datatype = self.datatype_of(document)
            if node is None or datatype is None:
                continue
            fields = self.reading.entry(document, node)
            change = Happened(datatype.id, Change.INSERT, row.doc_id, room_id, entity, item, entry.entry_id, fields)
            self.hooks.after_write(self, change)
            shown.append((row.number, item))
        self.store.mark_shown(shown)

    def _local(self, entity: EntityId) -> LocalEntity:
        found = self.keyring.local.get(entity)
        if found is None:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, f"{entity} is none of this daemon's entities", "See sublet whoami."
            )
        return found
