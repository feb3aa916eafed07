"""Walks a room's refs in their order across its shards, and knows which one is last.

A shard is where refs are kept, and says nothing of where they stand: whoever writes into a month to come, or into one
that is over, stands where the rule of ``protocol/ezagent/order.py`` puts them. So shards are merged by the ranks in
them; only those are opened that a walk comes to. Weak: the ranks of a room are read once, in time that grows with it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from sublet.messaging.documents.document import Document
from sublet.messaging.documents.sequence import Node
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.ports.rows import AfterRow, DocumentRow, EntryRow
from sublet.messaging.ports.store import Store
from sublet.messaging.schema.fields import FieldsView
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.order import AFTER, After, Place, parse_after, rank_of
from sublet.protocol.ezagent.yjs.update import ItemId

MAX_ROOMS: Final = 1_024
"""Rooms whose ranks are in memory; of more those are forgotten that were used longest ago."""


class _Span(NamedTuple):
    first: int
    last: int


class RoomOrder:
    """The order of the refs of rooms.

    Args:
        store: where ranks are kept.
        documents: which shards are open.
    """

    def __init__(self, store: Store, documents: OpenDocuments) -> None:
        self._store = store
        self._documents = documents
        self._spans: dict[RoomId, dict[str, _Span]] = {}

    def least_rank(self, document: Document, fields: FieldsView, ref_id: str) -> int:
        """Return the least rank of a new ref, before the one on its left is looked at."""
        after = self.after_of(document, fields) if AFTER in fields else None
        seen = self._rank_at(_name(document, after), after.item) if after is not None else None
        return rank_of(ref_id, () if seen is None else (seen,))

    def after_of(self, document: Document, fields: FieldsView) -> After | None:
        """Return the ref of another shard that a ref's writer had seen; None where the ref names none."""
        after = parse_after(fields.get(AFTER))
        return after if after is not None and after.shard != document.place.shard_id else None

    def is_here(self, document: Document, after: After) -> bool:
        """Tell whether an item of another shard is here. What a client wrote that forks is not waited for."""
        row = self._store.find_document(_name(document, after))
        if row is None:
            return False
        if any(fork.client == after.item[0] for fork in self._store.trust.forks(row.number)):
            return True
        opened = self._documents.is_open(row.doc_id)
        if opened is not None:
            return opened.next_clock(after.item[0]) > after.item[1]
        return self._store.trust.update_at(row.number, *after.item) is not None

    def after_row(self, document: Document, fields: FieldsView, item: ItemId) -> AfterRow | None:
        """Return what is kept of a ref that names one of another shard; None for others."""
        after = self.after_of(document, fields)
        return AfterRow(item, _name(document, after), after.item) if after is not None else None

    def rank_anew(self, name: str) -> list[bytes]:
        """Rank the shards anew whose refs name refs of a shard that was taken back; inside a transaction.

        What a client wrote that forks has no rank, on no replica, whenever its fork came to be known.

        Returns:
            The envelopes that were held in these shards, to be taken again.
        """
        due, done = [name], {name}
        held: list[bytes] = []
        while due:
            for document in self._store.ranks.shards_after(due.pop()):
                if document.doc_id not in done:
                    done.add(document.doc_id)
                    held += self._rank_shard(document)
                    due.append(document.doc_id)
        return held

    def _rank_shard(self, row: DocumentRow) -> list[bytes]:
        afters = {after.item: after for after in self._store.ranks.afters(row.number)}
        ranks: dict[ItemId, int] = {}
        own: dict[int, ItemId] = {}
        changed: list[EntryRow] = []
        for entry in self._store.entries(row.number):
            item, left = (entry.client, entry.clock), entry.origin
            if left is not None and left not in ranks:
                left = own.get(entry.client)
            after = afters.get(item)
            named = self._rank_at(after.doc_id, after.after) if after is not None else None
            seen = [ranks[left]] if left is not None else []
            rank = rank_of(entry.entry_id, seen if named is None else [*seen, named])
            ranks[item], own[entry.client] = rank, item
            if rank != entry.rank:
                entry.rank = rank
                changed.append(entry)
        if not changed:
            return []
        self._store.ranks.put(row.number, changed)
        return self._documents.close(row.doc_id)

    def taken(self, document: Document, rows: Iterable[EntryRow]) -> None:
        """Note refs that a shard has taken."""
        spans = self._spans.get(document.place.room_id or "")
        if spans is not None and document.place.shard_id is not None:
            for row in rows:
                span = spans.get(document.row.doc_id, _Span(row.rank, row.rank))
                spans[document.row.doc_id] = _Span(min(span.first, row.rank), max(span.last, row.rank))

    def forget(self) -> None:
        """Read the ranks anew, after a commit that failed or a history that was taken back."""
        self._spans.clear()

    def last(self, room_id: RoomId) -> tuple[Document, Node] | None:
        """Return the last ref of a room, whether it counts or not."""
        return next(self.backwards(room_id), None)

    def beyond(self, document: Document, ref_id: str) -> After | None:
        """Return what a new ref at the end of a shard has to name, so that it stands behind all that is here."""
        last = self.last(document.place.room_id or "")
        if last is None or last[0] is document:
            return None
        tail = document.elements.chain.tail
        rank = rank_of(ref_id, () if tail is None else (tail.rank,))
        return After(str(last[0].place.shard_id), last[1].id) if last[1].rank >= rank else None

    def backwards(self, room_id: RoomId, before: Place | None = None) -> Iterator[tuple[Document, Node]]:
        """Yield the refs of a room from the last one, or from the one before a place, to the first."""
        spans = self._of(room_id)
        ahead = sorted((span.last, name) for name, span in spans.items() if before is None or span.first <= before.rank)
        walks: list[_Walk] = []
        while ahead or walks:
            while ahead and (not walks or ahead[-1][0] >= walks[-1].place.rank):
                document = self._documents.open(ahead.pop()[1])
                _go_on(walks, document, document.elements.ranked.below(before))
            if walks:
                last = walks.pop()
                yield last.document, last.node
                _go_on(walks, last.document, last.nodes)

    def forwards(self, room_id: RoomId, after: Place | None = None) -> Iterator[tuple[Document, Node]]:
        """Yield the refs of a room from the first one, or from the one behind a place, to the last."""
        spans = self._of(room_id)
        ahead = sorted(
            ((span.first, name) for name, span in spans.items() if after is None or span.last >= after.rank),
            reverse=True,
        )
        walks: list[_Walk] = []
        while ahead or walks:
            while ahead and (not walks or ahead[-1][0] <= walks[0].place.rank):
                document = self._documents.open(ahead.pop()[1])
                _go_on(walks, document, document.elements.ranked.above(after))
            if walks:
                first = walks.pop(0)
                yield first.document, first.node
                _go_on(walks, first.document, first.nodes)

    def _of(self, room_id: RoomId) -> dict[str, _Span]:
        spans = self._spans.pop(room_id, None)
        if spans is None:
            spans = {name: _Span(*ranks) for name, ranks in self._store.ranks.of_room(room_id).items()}
            for document in self._documents.unsettled(room_id):
                if not document.elements.is_read:
                    continue
                nodes = document.elements.chain
                if nodes.head is not None and nodes.tail is not None:
                    spans[document.row.doc_id] = _Span(nodes.head.rank, nodes.tail.rank)
            while len(self._spans) >= MAX_ROOMS:
                del self._spans[next(iter(self._spans))]
        self._spans[room_id] = spans
        return spans

    def _rank_at(self, name: str, item: ItemId) -> int | None:
        """Return the rank of a ref by its item; None where it is none, or its client forks there or before."""
        opened = self._documents.is_open(name)
        if opened is not None:
            node = opened.elements.node(item)
            return node.rank if node is not None else None
        row = self._store.find_document(name)
        return self._store.ranks.of(row.number, item) if row is not None else None


class _Walk(NamedTuple):
    """Where a walk through one shard is: at a ref, with those beyond it to come."""

    place: Place
    document: Document
    node: Node
    nodes: Iterator[Node]


def _go_on(walks: list[_Walk], document: Document, nodes: Iterator[Node]) -> None:
    """Keep a walk in the order of the refs at which walks are, where it has come to another one."""
    node = next(nodes, None)
    if node is not None:
        insort(walks, _Walk(place_of(document, node), document, node, nodes), key=_place)


def _place(walk: _Walk) -> Place:
    return walk.place


def place_of(document: Document, node: Node) -> Place:
    """Return where a ref stands."""
    return Place(node.rank, *node.id, str(document.place.shard_id))


def _name(document: Document, after: After) -> str:
    return doc_id("index", room_id=str(document.place.room_id), shard_id=after.shard)
