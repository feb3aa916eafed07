"""The order of a text's parts, and which of them no writer can have put where they say they stand.

Replicas agree on the order only of parts that really stood between the neighbours that they name, in some text
that their writer may have seen. The least that a writer has seen is those neighbours, with what these name in turn. So
a part is false if one of its neighbours names another one that stands between the two, or if they stand the other way
round; and if none is, all orders in which the updates may come lead to the same text.

The order is that of Yjs. Its own way to find a place walks over all that others put there at the same time, which
costs the square of what they did. Here a part is the child of its left neighbour; a part's descendants stand behind
it, side by side, since a part is put behind one of these or behind its left neighbour alone. So a place follows from
the children of one part, which are searched (``ordered.py``), and the end of one child's descendants: the next part
that is no deeper.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sublet.messaging.documents.ordered import Ordered
from sublet.protocol.ezagent.yjs.update import STRING, Item, ItemId

_UNIT = 2
"""Bytes of one place of a text, a unit of UTF-16."""


@dataclass(slots=True, eq=False)
class Run:
    """Characters that one writer has put in at once, as far as nobody has written between them.

    ``text`` holds them in UTF-16, and is empty where they are not shown. ``depth`` is how many left neighbours of left
    neighbours the first one has.
    """

    client: int
    clock: int
    length: int
    origin: ItemId | None
    right: ItemId | None
    text: bytes | memoryview
    depth: int = 0

    @property
    def last(self) -> ItemId:
        """The id of the last character."""
        return self.client, self.clock + self.length - 1

    @property
    def first(self) -> ItemId:
        """The id of the first character."""
        return self.client, self.clock


class TextOrder:
    """All parts of a text, the deleted ones too, in the order in which every replica has them."""

    def __init__(self) -> None:
        self._all: Ordered[Run] = Ordered()
        self._starts: dict[int, list[int]] = {}
        self._runs: dict[int, list[Run]] = {}
        self._children: dict[ItemId | None, Ordered[Run]] = {}
        """Runs by their left neighbours, in order."""
        self._alike: dict[tuple[ItemId | None, ItemId | None], list[Run]] = {}
        """Runs by both neighbours, in order: by their clients, the least first."""

    def __iter__(self) -> Iterator[Run]:
        return iter(self._all)

    def place(self, client: int, items: Iterable[Item], *, shown: bool = True) -> bool:
        """Put in what an update adds; tell whether it may stand there, and put in nothing if it may not.

        Args:
            client: whose update it is.
            items: its parts of the text; their neighbours are here.
            shown: whether their characters are kept, or only their places.
        """
        placed: list[Run] = []
        for item in items:
            has_text = shown and item.kind == STRING and isinstance(item.value, str)
            text = str(item.value).encode("utf-16-le", "surrogatepass") if has_text else b""
            run = Run(client, item.clock, item.length, item.origin, item.right, text)
            if not self._put(run):
                for one in reversed(placed):
                    self._take_out(one)
                return False
            placed.append(run)
        return True

    def behind(self, item: ItemId | None) -> ItemId | None:
        """Return which character stands behind another one; the first one for None."""
        run = self._holding(item) if item is not None else None
        if item is not None and run is not None and run.last != item:
            return item[0], item[1] + 1
        following = self._following(run)
        return following.first if following is not None else None

    def _put(self, run: Run) -> bool:
        # In this order: where both are in one run, cutting it behind the left one leaves where the other begins.
        right = self._starting_at(run.right) if run.right is not None else None
        left = self._ending_at(run.origin) if run.origin is not None else None
        if (run.origin is not None and left is None) or (run.right is not None and right is None):
            return False
        if not self._is_true(left, right):
            return False
        run.depth = left.depth + left.length if left is not None else 0
        siblings = self._children.get(run.origin)
        before, sibling = self._following(left), siblings.first() if siblings is not None else None
        if before is not right and siblings is not None:
            last = siblings.last_below(self._stop(run, right), run.client)
            if last is not None:
                before, sibling = self._all.next_at_most(last, last.depth), siblings.after(last)
        self._link(run, before, sibling)
        return True

    def _is_true(self, left: Run | None, right: Run | None) -> bool:
        """Tell whether two neighbours come in order, and neither names another one that stands between them."""
        if right is None:
            return left is None or left.right is None
        if left is None:
            return right.origin is None
        start, end = self._all.place(left), self._all.place(right)
        if start >= end:
            return False
        named = (self._holding(one) for one in (left.right, right.origin) if one is not None)
        return not any(start < self._all.place(one) < end for one in named if one is not None)

    def _stop(self, run: Run, right: Run | None) -> Run | None:
        """Return before which sibling a run has to stand, whoever wrote it; None where that may be behind all."""
        alike = self._alike.get((run.origin, run.right), [])
        place = bisect_left(alike, run.client, key=_client)
        if place < len(alike):
            return alike[place]
        return right if right is not None and right.origin == run.origin else None

    def _following(self, run: Run | None) -> Run | None:
        return self._all.after(run) if run is not None else self._all.first()

    def _link(self, run: Run, before: Run | None, sibling: Run | None) -> None:
        self._all.insert(run, run.depth, before)
        self._children.setdefault(run.origin, Ordered()).insert(run, run.client, sibling)
        alike = self._alike.setdefault((run.origin, run.right), [])
        alike.insert(bisect_left(alike, run.client, key=_client), run)
        starts, runs = self._starts.setdefault(run.client, []), self._runs.setdefault(run.client, [])
        place = bisect_right(starts, run.clock)
        starts.insert(place, run.clock)
        runs.insert(place, run)

    def _take_out(self, run: Run) -> None:
        """Take out what was put in last of its client, with what it was split into."""
        starts, runs = self._starts[run.client], self._runs[run.client]
        while runs and runs[-1].clock >= run.clock:
            one = runs.pop()
            starts.pop()
            self._all.remove(one)
            self._children[one.origin].remove(one)
            self._alike[one.origin, one.right].remove(one)

    def _holding(self, item: ItemId) -> Run | None:
        starts = self._starts.get(item[0])
        place = bisect_right(starts, item[1]) - 1 if starts else -1
        if place < 0:
            return None
        run = self._runs[item[0]][place]
        return run if item[1] < run.clock + run.length else None

    def _ending_at(self, item: ItemId) -> Run | None:
        run = self._holding(item)
        if run is not None and run.last != item:
            self._split(run, item[1] + 1)
        return run

    def _starting_at(self, item: ItemId) -> Run | None:
        run = self._holding(item)
        return run if run is None or run.clock == item[1] else self._split(run, item[1])

    def _split(self, run: Run, clock: int) -> Run:
        """Cut a run in two before a clock; return the second one."""
        first = clock - run.clock
        cut = first * _UNIT
        text = memoryview(run.text)  # so that the rest of a long run is not copied for each cut
        origin = run.client, clock - 1
        second = Run(run.client, clock, run.length - first, origin, run.right, text[cut:], run.depth + first)
        run.length, run.text = first, text[:cut]
        self._link(second, self._following(run), None)
        return second


def _client(run: Run) -> int:
    return run.client
