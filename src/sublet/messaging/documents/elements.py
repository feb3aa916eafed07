"""The elements of one open document, in order: all of them in memory, or a few that were asked for.

Rules: whoever adds an element, or walks through them, has all of them read from the store first, once. Whoever asks for
one of a document that is not read yet gets that one alone, so what annotates a few refs of a full shard does not cost
what the shard holds. Weak: where all are needed there is a node for each, so a shard is bounded in refs.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from sublet.messaging.documents.in_memory import InMemory
from sublet.messaging.documents.ranked import RankedList
from sublet.messaging.documents.sequence import Chain, Node, YataList
from sublet.messaging.ports.rows import EntryRow
from sublet.messaging.ports.store import Store
from sublet.protocol.ezagent.yjs.update import ItemId

READ_ALONE: Final = 64
"""Elements that are read one by one; whoever needs more has all of them read."""


class Elements:
    """Elements of an array, or refs of a shard.

    Args:
        store: where they are.
        document: number of the document.
        shard: the name of the shard whose refs they are; None for other documents.
        is_read: whether the store can have none.
        counted: with which other documents they are counted together.
    """

    def __init__(
        self, store: Store, document: int, shard: str | None, *, is_read: bool, counted: InMemory | None = None
    ) -> None:
        self._counted = counted or InMemory()
        self._store = store
        self._document = document
        self._ranked = RankedList(shard) if shard is not None else None
        self._chain: Chain = self._ranked if self._ranked is not None else YataList()
        self._starts: dict[int, list[int]] = {}
        self._alone: dict[ItemId, Node] = {}
        self.is_read = is_read
        """Whether all of them are in memory; else the store has them all."""

    @property
    def chain(self) -> Chain:
        """Return all of them, in order."""
        if not self.is_read:
            self.is_read = True
            self._alone.clear()
            for entry in self._store.entries(self._document):
                self._place(entry)
        return self._chain

    @property
    def ranked(self) -> RankedList:
        """Return the refs of a shard, by their places."""
        assert self._ranked is not None, "it is a shard"
        assert self.chain is self._ranked
        return self._ranked

    @property
    def in_memory(self) -> int:
        """Return how many are in memory."""
        return len(self._chain)

    def node(self, item: ItemId) -> Node | None:
        """Return the element that an item is."""
        if self.is_read:
            return self._chain.nodes.get(item)
        node = self.holding(item)
        return node if node is not None and node.id == item else None

    def named(self, entry_id: str) -> Node | None:
        """Return the element of an id."""
        if self.is_read:
            return self._chain.by_entry.get(entry_id)
        row = self._store.ranks.named(self._document, entry_id)
        return self._one(row) if row is not None else None

    def holding(self, item: ItemId) -> Node | None:
        """Return the element that an item was added with."""
        if not self.is_read and len(self._alone) < READ_ALONE:
            row = self._store.ranks.holding(self._document, item)
            return self._one(row) if row is not None and item[1] < row.clock + row.length else None
        chain = self.chain
        starts = self._starts.get(item[0])
        if not starts:
            return None
        place = bisect_right(starts, item[1]) - 1
        if place < 0:
            return None
        node = chain.nodes[item[0], starts[place]]
        return node if item[1] < node.id[1] + node.length else None

    def add(self, entry: EntryRow) -> None:
        """Put a new element where it belongs; a ref gets the rank that it has there."""
        assert self.chain is self._chain, "the others are read before"
        self._place(entry)

    def let_go(self) -> None:
        """Be counted no more, since the document is closed."""
        self._counted.elements -= self.in_memory
        self._counted = InMemory()

    def _one(self, row: EntryRow) -> Node:
        item = (row.client, row.clock)
        node = self._alone.get(item)
        if node is None:
            node = self._alone[item] = _node(row, row.origin)
        return node

    def _place(self, entry: EntryRow) -> None:
        origin = entry.origin
        if origin is not None and origin not in self._chain.nodes:
            # Beside what forks, which is not here or elsewhere another: behind its author's own last one, on all peers.
            own = self._starts.get(entry.client)
            origin = (entry.client, own[-1]) if own else None
        if self._ranked is not None and origin is not None:
            entry.rank = max(entry.rank, self._chain.nodes[origin].rank + 1)
        before = len(self._chain)
        self._chain.integrate(_node(entry, origin))
        self._counted.elements += len(self._chain) - before
        self._starts.setdefault(entry.client, []).append(entry.clock)


def _node(entry: EntryRow, origin: ItemId | None) -> Node:
    return Node(
        (entry.client, entry.clock),
        entry.length,
        origin,
        entry.right,
        entry.entry_id,
        entry.signer,
        entry.seq,
        entry.rank,
    )
