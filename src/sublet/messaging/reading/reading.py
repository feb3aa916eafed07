"""Reads what counts: refs with their annotations, and map documents, from the index and the log.

Rules: nothing here walks a document, so a page of refs costs what its refs cost, however long the room is. All replicas
that hold the same log read the same: which write of a key counts follows from rules, members and the CRDT's order, and
never from when something came. Weak: a key that was written thousands of times is put in order whenever it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from sublet.messaging.documents.document import Document
from sublet.messaging.documents.ordered import Ranges
from sublet.messaging.documents.sequence import Node
from sublet.messaging.opening.accepted_updates import AcceptedUpdates
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.opening.room_order import place_of
from sublet.messaging.ports.rows import DocumentRow, WriteRow
from sublet.messaging.ports.store import Store
from sublet.messaging.reading.authorise import WriterRules
from sublet.messaging.reading.candidates import Candidate, Path, candidate_of, first_fields, live, ordered
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.fields import Fields, FieldsView
from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent.ids import ContentId, EntityId, RefId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.order import Place
from sublet.protocol.ezagent.ref_shape import CORE, mended
from sublet.protocol.ezagent.yjs.update import ItemId

MAX_REFS_AT_ONCE: Final = 64
"""Refs that are read once while nothing changes, the last ones."""


class Reading:
    """Reads what counts.

    Args:
        store: the index of what was accepted.
        documents: which documents are open.
        updates: the log's updates, decoded.
        rooms: who is in which room.
        rules: whose writes count.
    """

    def __init__(
        self, store: Store, documents: OpenDocuments, updates: AcceptedUpdates, rooms: RoomStates, rules: WriterRules
    ) -> None:
        self._store = store
        self._documents = documents
        self._updates = updates
        self._rooms = rooms
        self._rules = rules
        self._refs: dict[RefId, Fields | None] | None = None
        """Refs that were read while nothing changes; None where something may."""

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Read each ref once as long as the context is open, in which nothing is written that counts for any."""
        self._refs = {}
        try:
            yield
        finally:
            self._refs = None

    def ref(self, ref_id: RefId) -> Fields | None:
        """Return a ref as it counts, with its place; None where there is none that counts."""
        if self._refs is None:
            return self._ref(ref_id)
        if ref_id not in self._refs:
            if len(self._refs) >= MAX_REFS_AT_ONCE:
                self._refs.clear()
            self._refs[ref_id] = self._ref(ref_id)
        found = self._refs[ref_id]
        return found.copy() if found is not None else None

    def _ref(self, ref_id: RefId) -> Fields | None:
        found = self._store.find_entry(ref_id)
        if found is None:
            return None
        document = self._documents.open(found[0].doc_id)
        node = document.elements.node(found[1])
        return self.entry(document, node) if node is not None and self.counts(document, node) else None

    def ref_in(self, room_id: RoomId, ref_id: RefId) -> Fields | None:
        """Return a ref of one room as it counts; None where there is none."""
        ref = self.ref(ref_id)
        return ref if ref is not None and ref["room_id"] == room_id else None

    def precedes(self, room_id: RoomId, first: RefId, second: RefId) -> bool:
        """Tell whether one ref of a room comes before another; no where one of them is not here."""
        there = self._store.find_refs((first, second))
        if first == second or len(there) < 2 or any(row.room_id != room_id for row, _ in there.values()):
            return False
        return self._place(*there[first]) < self._place(*there[second])

    def _place(self, row: DocumentRow, item: ItemId) -> Place:
        document = self._documents.open(row.doc_id)
        node = document.elements.node(item)
        assert node is not None, "it is here"
        return place_of(document, node)

    def counting(self, room_id: RoomId, ref_ids: Iterable[RefId]) -> set[RefId]:
        """Return those of some refs that are in a room and count, without reading their fields."""
        found: set[RefId] = set()
        for ref_id, (row, item) in self._store.find_refs(ref_ids).items():
            if row.room_id == room_id:
                document = self._documents.open(row.doc_id)
                node = document.elements.node(item)
                if node is not None and self.counts(document, node):
                    found.add(ref_id)
        return found

    def counts(self, document: Document, node: Node) -> bool:
        """Tell whether an element counts."""
        room_id = document.place.room_id
        if room_id is None:
            return False
        if document.place.kind == "index":
            return self._rooms.counts(room_id, node.signer, document.room_part, node.id)
        return self.write_counts(document, (), node.signer, node.id, first=True)

    def write_counts(self, document: Document, path: Path, signer: EntityId, item: ItemId, *, first: bool) -> bool:
        """Tell whether a write to a map or a text, or an element of an array counts; see ``WriterRules``."""
        return self._rules.document_write_counts(self, document, path, signer, item, first=first)

    def entry(self, document: Document, node: Node) -> Fields:
        """Return an element's fields as they count, with ``room_id`` and ``shard_id``."""
        candidates = first_fields(node, self._updates.read(node.seq)) + [
            candidate_of(row) for row in self._store.writes(document.row.number, node.id)
        ]
        fields = self._resolved(document, node, candidates)
        if document.place.kind == "index":
            fields = mended(fields, node.entry_id, node.signer)
        return {**fields, "room_id": document.place.room_id, "shard_id": document.place.shard_id}

    def elements(self, document: Document) -> Iterator[Fields]:
        """Yield the elements of an array document that count, in order."""
        for node in document.elements.chain:
            if self.counts(document, node):
                yield self.entry(document, node)

    def map_document(self, doc_id: str) -> Fields:
        """Return a map document as it counts; empty where there is none."""
        row = self._store.find_document(doc_id)
        if row is None:
            return {}
        document = self._documents.open(doc_id)
        candidates = [candidate_of(write) for write in self._rows(document, None)]
        return self._resolved(document, None, candidates)

    def content(self, room_id: RoomId, content_id: ContentId) -> dict[str, JsonValue] | None:
        """Return an immutable content, which was checked when it came; None where it is not here."""
        return self._content(room_id, content_id, None)

    def content_of(self, ref: FieldsView) -> dict[str, JsonValue] | None:
        """Return the immutable content that a ref names; None where it is not here."""
        name = doc_id("index", room_id=ref["room_id"], shard_id=ref["shard_id"])
        row = self._store.find_document(name)
        return self._content(ref["room_id"], str(ref["content_id"]), row.number if row is not None else None)

    def _content(self, room_id: RoomId, content_id: ContentId, document: int | None) -> dict[str, JsonValue] | None:
        raw = self._store.content(room_id, content_id, document)
        if raw is None:
            return None
        content: dict[str, JsonValue] = json.loads(raw)
        return content

    def latest(self, document: Document, entry: ItemId | None, path: Path) -> tuple[ItemId | None, ItemId | None]:
        """Return what a writer of a key must name: the map that holds it, None for the first, and the item it replaces.

        Raises:
            KeyError: a map on the way is missing.
        """
        node, candidates = self._candidates(document, entry)
        container: ItemId | None = None
        for key in path[:-1]:
            chain = ordered([item for item in candidates if item.container == container and item.key == key])
            maps = [item for item in chain if item.nested]
            if not maps:
                raise KeyError(key)
            container = self._holding(document, node, maps, path[: path.index(key) + 1]).id
            if path[:-1] == (key,):
                filled = live(candidates, self._maps(document, node, path[0], chain), path[-1])
                container = filled[-1] if filled else container
        chain = ordered([item for item in candidates if item.container == container and item.key == path[-1]])
        return container, chain[-1].id if chain else None

    def writes_of(self, document: Document, key: str) -> list[ItemId]:
        """Return the writes of a key of a map document, whether they count or not, the last one at the end."""
        _, candidates = self._candidates(document, None)
        return [item.id for item in ordered([one for one in candidates if one.container is None and one.key == key])]

    def is_shared(self, document: Document, entry: ItemId, key: str) -> bool:
        """Tell whether an element has a shared map under a key, whoever has made it."""
        _, candidates = self._candidates(document, entry)
        return any(item.nested and item.container is None and item.key == key for item in candidates)

    def held(self, document: Document, entry: ItemId, path: Path) -> int:
        """Return in how many of an element's shared maps of one name a key has a value."""
        node, candidates = self._candidates(document, entry)
        chain = ordered([item for item in candidates if item.container is None and item.key == path[0]])
        return len(live(candidates, self._maps(document, node, path[0], chain), path[1]))

    def _candidates(self, document: Document, entry: ItemId | None) -> tuple[Node | None, list[Candidate]]:
        node = document.elements.node(entry) if entry is not None else None
        candidates = first_fields(node, self._updates.read(node.seq)) if node is not None else []
        return node, candidates + [candidate_of(row) for row in self._rows(document, entry)]

    def _maps(self, document: Document, node: Node | None, key: str, chain: list[Candidate]) -> list[ItemId]:
        """Return the shared maps that count under a key: the author's, or all that others made where that is none.

        Whoever annotates a ref from before its extension was enabled makes the map; two may do so at once, and neither
        may lose what is in it.
        """
        founding = [item.id for item in chain if item.first and item.nested]
        return founding or [
            item.id for item in chain if item.nested and self._write_counts(document, node, (key,), item, founded=False)
        ]

    def _holding(self, document: Document, node: Node | None, maps: list[Candidate], path: Path) -> Candidate:
        founding = [item for item in maps if item.first]
        if founding:
            return founding[0]
        counted = [item for item in maps if self._write_counts(document, node, path, item, founded=False)]
        return (counted or maps)[-1]

    def _rows(self, document: Document, entry: ItemId | None) -> list[WriteRow]:
        stored = self._store.writes(document.row.number, entry)
        known = {(row.client, row.clock) for row in stored}
        return stored + [row for id, row in document.staged_writes.items() if row.entry == entry and id not in known]

    def _resolved(self, document: Document, node: Node | None, candidates: list[Candidate]) -> Fields:
        groups: dict[ItemId | None, dict[str, list[Candidate]]] = {}
        for candidate in candidates:
            groups.setdefault(candidate.container, {}).setdefault(candidate.key, []).append(candidate)
        deleted = self._deleted(document, {candidate.id[0] for candidate in candidates})
        core = node is not None and document.place.kind == "index"

        def fields(container: ItemId | None, above: Path) -> Fields:
            found: Fields = {}
            for key, chain in groups.get(container, {}).items():
                path = (*above, key)
                if (
                    node is not None
                    and not above
                    and key.startswith("ext.")
                    and self._rules.shared_map(key)
                    and any(item.nested for item in chain)
                ):
                    maps = self._maps(document, node, key, ordered(chain))
                    if maps:
                        found[key] = {name: value for map_id in maps for name, value in fields(map_id, path).items()}
                    continue
                winner = self._winner(document, node, path, chain)
                if winner is None:
                    continue
                lasts = core and not above and key in CORE  # a ref without one of these would be none
                if not lasts and deleted(winner.id, partial(self._deletes, document, node, path)):
                    continue
                value = fields(winner.id, path) if winner.nested else winner.value
                if value is not None:
                    found[key] = value
            return found

        return fields(None, ())

    def _winner(self, document: Document, node: Node | None, path: Path, chain: list[Candidate]) -> Candidate | None:
        """Return the last write of a key that counts."""
        founded = any(item.first and item.nested for item in chain)
        for item in reversed(ordered(chain)):
            if self._write_counts(document, node, path, item, founded=founded):
                return item
        return None

    def _write_counts(
        self, document: Document, node: Node | None, path: Path, item: Candidate, *, founded: bool
    ) -> bool:
        if item.first and node is not None:
            annotation = self._rules.shared_map(path[0]) if len(path) > 1 else None
            return annotation is None or self._rules.first_key_counts(annotation, node.signer, path[-1])
        if node is None:
            return self.write_counts(document, path, item.signer, item.id, first=item.origin is None)
        if not path[0].startswith("ext."):
            return item.signer == node.signer
        return self._rules.annotation_counts(document, node.signer, path, item.signer, item.id, founded=founded)

    def _deletes(self, document: Document, node: Node | None, path: Path, signer: EntityId) -> bool:
        """Tell whether somebody's deletion counts: it names no clock of theirs, so only of who was never removed."""
        room_id = document.place.room_id
        if room_id is None:
            return document.place.entity_id == signer
        if not self._rooms.always_counts(room_id, signer):
            return False
        probe = Candidate((0, 0), (0, 0), None, signer, path[-1], None, None, nested=False, first=False)
        founded = len(path) == 1 and node is not None
        return self._write_counts(document, node, path, probe, founded=founded)

    def taken_away(self, document: Document, node: Node, path: Path, signer: EntityId) -> bool:
        """Tell whether somebody's deletion of a key of an element counts, and nothing is there any more."""
        value: object = self.entry(document, node)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value is None and self._deletes(document, node, path, signer)

    def _deleted(self, document: Document, clients: set[int]) -> Callable[[ItemId, Callable[[EntityId], bool]], bool]:
        rows = self._store.deletions(document.row.number, clients)
        by_client: dict[int, dict[EntityId, Ranges]] = {}
        for row in rows:
            cut = row.deletion
            cuts = by_client.setdefault(cut.client, {}).setdefault(row.signer, Ranges())
            cuts.add(cut.clock, cut.clock + cut.length)

        def deleted(item: ItemId, may: Callable[[EntityId], bool]) -> bool:
            return any(cuts.holds(item[1]) and may(signer) for signer, cuts in by_client.get(item[0], {}).items())

        return deleted
