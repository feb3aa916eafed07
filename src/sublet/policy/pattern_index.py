"""Finds which of many patterns match a name without trying each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from sublet.policy.globs import is_literal, literal_prefix, matcher, needed_literal
from sublet.policy.names import MAX_REMEMBERED_CHARS

T = TypeVar("T")

MAX_REMEMBERED: Final = 1_024
"""Names per index whose answer is remembered; the same few are asked for again and again."""


class PatternIndex(Generic[T]):
    """Values by pattern: names are looked up, beginnings too, and of other patterns only those are tried whose text
    is in the name at all.

    Args:
        items: pattern, in the form in which names are compared, and value.
    """

    __slots__ = ("_all", "_exact", "_globs", "_known", "_lengths", "_prefixes")

    def __init__(self, items: Iterable[tuple[str, T]]) -> None:
        self._exact: dict[str, list[T]] = {}
        self._prefixes: dict[str, list[T]] = {}
        self._globs: list[tuple[str, Callable[[str], bool], T]] = []
        self._all: list[T] = []
        self._known: dict[str, list[T]] = {}
        for pattern, value in items:
            prefix = literal_prefix(pattern)
            if pattern == "*":
                self._all.append(value)
            elif is_literal(pattern):
                self._exact.setdefault(pattern, []).append(value)
            elif prefix is not None:
                self._prefixes.setdefault(prefix, []).append(value)
            else:
                self._globs.append((needed_literal(pattern), matcher(pattern), value))
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})

    def find(self, name: str) -> list[T]:
        """Return the values whose pattern matches ``name``, in no particular order; the list is not to be changed."""
        found = self._known.get(name)
        if found is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            found = self._find(name)
            if len(name) <= MAX_REMEMBERED_CHARS:
                self._known[name] = found
        return found

    def values(self) -> Iterator[T]:
        """Yield all values."""
        yield from self._all
        for values in (*self._exact.values(), *self._prefixes.values()):
            yield from values
        for _, _, value in self._globs:
            yield value

    def _find(self, name: str) -> list[T]:
        found = [*self._all, *self._exact.get(name, ())]
        size = len(name)
        for length in self._lengths:
            if length > size:
                break
            found += self._prefixes.get(name[:length], ())
        found += [value for needed, matches, value in self._globs if needed in name and matches(name)]
        return found
