"""The refs of one shard by their places (``protocol/ezagent/order.py``), linked in that order.

Nearly all come behind the last one, at no cost. Where one does not, its place is found among chunks of bounded length,
so a writer of old times costs no more than the logarithm of what is there, and a chunk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Final

from sublet.messaging.documents.sequence import Chain, Node
from sublet.protocol.ezagent.order import Place

CHUNK: Final = 512
"""Places of one chunk at most."""


class RankedList(Chain):
    """Refs by their places.

    Args:
        shard: the name of the shard, the last part of each place.
    """

    def __init__(self, shard: str) -> None:
        super().__init__()
        self._shard = shard
        self._chunks: list[list[Place]] = []
        self._lasts: list[Place] = []

    def place(self, node: Node) -> Place:
        """Return where a ref stands."""
        return Place(node.rank, *node.id, self._shard)

    def integrate(self, node: Node) -> None:
        """Put a ref where its rank says."""
        place = self.place(node)
        self.link(node, self._before(place))
        self._add(place)

    def precedes(self, first: Node, second: Node) -> bool:
        """Tell whether one of two different refs comes before the other."""
        return self.place(first) < self.place(second)

    def below(self, place: Place | None) -> Iterator[Node]:
        """Yield refs from the last one that stands before a place, or from the last of all, to the first."""
        node = self.tail if place is None else self._before(place)
        while node is not None:
            yield node
            node = node.previous

    def above(self, place: Place | None) -> Iterator[Node]:
        """Yield refs from the first one that stands behind a place, or from the first of all, to the last."""
        node = self.head if place is None else self._behind(place)
        while node is not None:
            yield node
            node = node.next

    def _before(self, place: Place) -> Node | None:
        """Return the last ref that stands before a place."""
        if self.tail is None or self.place(self.tail) < place:
            return self.tail
        at = bisect_left(self._lasts, place)
        chunk = self._chunks[at]
        inner = bisect_left(chunk, place)
        if inner == 0 and at == 0:
            return None
        found = chunk[inner - 1] if inner else self._lasts[at - 1]
        return self.nodes[found.client, found.clock]

    def _behind(self, place: Place) -> Node | None:
        """Return the first ref that stands behind a place."""
        if self.tail is None or self.place(self.tail) <= place:
            return None
        at = bisect_right(self._lasts, place)
        found = self._chunks[at][bisect_right(self._chunks[at], place)]
        return self.nodes[found.client, found.clock]

    def _add(self, place: Place) -> None:
        if not self._chunks:
            self._chunks, self._lasts = [[place]], [place]
            return
        at = min(bisect_left(self._lasts, place), len(self._lasts) - 1)
        chunk = self._chunks[at]
        insort(chunk, place)
        if len(chunk) > CHUNK:
            # Nearly all come at the end: what is before it is left full.
            cut = CHUNK if place is chunk[-1] else CHUNK // 2
            self._chunks[at : at + 1] = [chunk[:cut], chunk[cut:]]
            self._lasts[at : at + 1] = [chunk[cut - 1], chunk[-1]]
        else:
            self._lasts[at] = chunk[-1]
