"""A sequence that grows anywhere, whose places are compared and searched without walking it.

Items stand in chunks of bounded length, and each chunk knows the least key in it: a search looks into two chunks and
passes over the others. Nothing here costs more than the chunk and the number of chunks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

CHUNK: Final = 128
"""Items of one chunk at most."""


@dataclass(slots=True, eq=False)
class _Chunk(Generic[T]):
    items: list[T]
    keys: list[int]
    number: int
    least: int


class Ordered(Generic[T]):
    """Items in an order, each with a key that never changes; an item is there once."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk[T]] = []
        self._of: dict[T, _Chunk[T]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(chunk.items for chunk in self._chunks)

    def place(self, item: T) -> tuple[int, int]:
        """Return a place, which compares with others until the next change."""
        chunk = self._of[item]
        return chunk.number, chunk.items.index(item)

    def first(self) -> T | None:
        """Return the first item."""
        return self._chunks[0].items[0] if self._chunks else None

    def after(self, item: T) -> T | None:
        """Return the item behind another."""
        number, place = self.place(item)
        items = self._chunks[number].items
        if place + 1 < len(items):
            return items[place + 1]
        return self._chunks[number + 1].items[0] if number + 1 < len(self._chunks) else None

    def insert(self, item: T, key: int, before: T | None) -> None:
        """Put an item in before another; at the end where that is None."""
        if not self._chunks:
            self._chunks.append(_Chunk([], [], 0, key))
        if before is None:
            chunk = self._chunks[-1]
            place = len(chunk.items)
        else:
            chunk = self._of[before]
            place = chunk.items.index(before)
        chunk.items.insert(place, item)
        chunk.keys.insert(place, key)
        chunk.least = min(chunk.least, key)
        self._of[item] = chunk
        if len(chunk.items) > CHUNK:
            self._halve(chunk)

    def remove(self, item: T) -> None:
        """Take an item out."""
        chunk = self._of.pop(item)
        place = chunk.items.index(item)
        del chunk.items[place], chunk.keys[place]
        if chunk.items:
            chunk.least = min(chunk.keys)
        else:
            del self._chunks[chunk.number]
            self._number_from(chunk.number)

    def next_at_most(self, item: T, key: int) -> T | None:
        """Return the first item behind another whose key is at most ``key``."""
        number, place = self.place(item)
        chunk = self._chunks[number]
        for other in range(place + 1, len(chunk.items)):
            if chunk.keys[other] <= key:
                return chunk.items[other]
        for chunk in self._chunks[number + 1 :]:
            if chunk.least <= key:
                return chunk.items[next(at for at, one in enumerate(chunk.keys) if one <= key)]
        return None

    def last_below(self, before: T | None, key: int) -> T | None:
        """Return the last item whose key is less than ``key``, of those before another one or of all."""
        if before is None:
            number, place = len(self._chunks), 0
        else:
            number, place = self.place(before)
            chunk = self._chunks[number]
            for other in range(place - 1, -1, -1):
                if chunk.keys[other] < key:
                    return chunk.items[other]
        for chunk in reversed(self._chunks[:number]):
            if chunk.least < key:
                return chunk.items[max(at for at, one in enumerate(chunk.keys) if one < key)]
        return None

    def _halve(self, chunk: _Chunk[T]) -> None:
        half = len(chunk.items) // 2
        second = _Chunk(chunk.items[half:], chunk.keys[half:], chunk.number + 1, min(chunk.keys[half:]))
        del chunk.items[half:], chunk.keys[half:]
        chunk.least = min(chunk.keys)
        self._chunks.insert(second.number, second)
        self._of.update(dict.fromkeys(second.items, second))
        self._number_from(second.number)

    def _number_from(self, number: int) -> None:
        for chunk in self._chunks[number:]:
            chunk.number = number
            number += 1


class Ranges:
    """Whole numbers, as ranges that don't touch: what was deleted of one client."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Add the numbers from ``start`` up to ``end`` (excluded)."""
        first = bisect_right(self._ends, start - 1)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def holds(self, number: int) -> bool:
        """Tell whether a number is among them."""
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and self._ends[at] > number

    def left(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between two numbers that are not among them."""
        at = bisect_right(self._ends, start)
        while start < end:
            if at == len(self._starts) or self._starts[at] >= end:
                yield start, end
                return
            if start < self._starts[at]:
                yield start, self._starts[at]
            start = self._ends[at]
            at += 1
