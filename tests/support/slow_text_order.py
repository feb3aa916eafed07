"""The order of a text by the walk of Yjs: what ``text_order`` has to equal, at the square of its cost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from sublet.protocol.ezagent.yjs.update import Item, ItemId


@dataclass(slots=True, eq=False)
class _Run:
    """Characters that one writer has put in at once, as far as nobody has written between them."""

    client: int
    clock: int
    length: int
    origin: ItemId | None
    right: ItemId | None
    previous: _Run | None = None
    next: _Run | None = None

    @property
    def last(self) -> ItemId:
        return self.client, self.clock + self.length - 1

    @property
    def first(self) -> ItemId:
        return self.client, self.clock


class SlowTextOrder:
    """All parts of a text, the deleted ones too, in the order in which every replica has them."""

    def __init__(self) -> None:
        self._head: _Run | None = None
        self._starts: dict[int, list[int]] = {}
        self._runs: dict[int, list[_Run]] = {}

    def place(self, client: int, items: Iterable[Item]) -> bool:
        """Put in what an update adds; tell whether it may stand there, and put in nothing if it may not.

        Args:
            client: whose update it is.
            items: its parts of the text; their neighbours are here.
        """
        placed: list[_Run] = []
        for item in items:
            run = _Run(client, item.clock, item.length, item.origin, item.right)
            if not self._put(run):
                for one in reversed(placed):
                    self._take_out(one)
                return False
            placed.append(run)
        return True

    def _put(self, run: _Run) -> bool:
        # In this order: where both are in one run, cutting it behind the left one leaves where the other begins.
        right = self._starting_at(run.right) if run.right is not None else None
        left = self._ending_at(run.origin) if run.origin is not None else None
        if (run.origin is not None and left is None) or (run.right is not None and right is None):
            return False
        if not self._is_true(left, right):
            return False
        following = left.next if left is not None else self._head
        if following is not right:
            left = self._conflict(run, left, following, right)
        self._link(run, left)
        return True

    def _is_true(self, left: _Run | None, right: _Run | None) -> bool:
        """Tell whether two neighbours come in order, and neither names another one that stands between them."""
        if right is None:
            return left is None or left.right is None
        if left is None and right.origin is not None:
            return False
        one = left.next if left is not None else self._head
        while one is not None and one is not right:
            if (left is not None and one.first == left.right) or (
                right.origin is not None and one.last == right.origin
            ):
                return False
            one = one.next
        return one is right

    def _conflict(self, run: _Run, left: _Run | None, other: _Run | None, right: _Run | None) -> _Run | None:
        """Return behind which one a run comes where others stand between its neighbours, as Yjs decides it."""
        conflicting: set[_Run] = set()
        passed: set[_Run] = set()
        while other is not None and other is not right:
            passed.add(other)
            conflicting.add(other)
            if other.origin == run.origin:
                if other.client < run.client:
                    left = other
                    conflicting.clear()
                elif other.right == run.right:
                    break
            elif other.origin is not None and (before := self._holding(other.origin)) in passed:
                if before not in conflicting:
                    left = other
                    conflicting.clear()
            else:
                break
            other = other.next
        return left

    def _link(self, run: _Run, left: _Run | None) -> None:
        following = left.next if left is not None else self._head
        run.previous, run.next = left, following
        if left is not None:
            left.next = run
        else:
            self._head = run
        if following is not None:
            following.previous = run
        starts, runs = self._starts.setdefault(run.client, []), self._runs.setdefault(run.client, [])
        place = bisect_right(starts, run.clock)
        starts.insert(place, run.clock)
        runs.insert(place, run)

    def _take_out(self, run: _Run) -> None:
        """Take out what was put in last of its client, with what it was split into."""
        starts, runs = self._starts[run.client], self._runs[run.client]
        while runs and runs[-1].clock >= run.clock:
            one = runs.pop()
            starts.pop()
            if one.previous is not None:
                one.previous.next = one.next
            else:
                self._head = one.next
            if one.next is not None:
                one.next.previous = one.previous

    def _holding(self, item: ItemId) -> _Run | None:
        starts = self._starts.get(item[0])
        place = bisect_right(starts, item[1]) - 1 if starts else -1
        if place < 0:
            return None
        run = self._runs[item[0]][place]
        return run if item[1] < run.clock + run.length else None

    def _ending_at(self, item: ItemId) -> _Run | None:
        run = self._holding(item)
        if run is not None and run.last != item:
            self._split(run, item[1] + 1)
        return run

    def _starting_at(self, item: ItemId) -> _Run | None:
        run = self._holding(item)
        return run if run is None or run.clock == item[1] else self._split(run, item[1])

    def _split(self, run: _Run, clock: int) -> _Run:
        """Cut a run in two before a clock; return the second one."""
        second = _Run(run.client, clock, run.clock + run.length - clock, (run.client, clock - 1), run.right)
        run.length = clock - run.clock
        self._link(second, run)
        return second

    def ids(self) -> list[ItemId]:
        """Return all characters in order."""
        found: list[ItemId] = []
        run = self._head
        while run is not None:
            found += [(run.client, run.clock + number) for number in range(run.length)]
            run = run.next
        return found
