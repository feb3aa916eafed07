"""The one engine for globs over paths: components in order, and any number of them where the pattern says so.

Two languages are made from it, each with its own way to write a pattern: rules of policy (``policy.globs``), and names
that are hidden, locked or left out of what is lent (``workspace.view.patterns``). Both take a component for what
``fnmatch`` means by it (``protocol.patterns.glob``).

Rule: a pattern of k components costs at most k tests for each component of the path, whatever either is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import AnyStr, Final, Generic, TypeAlias

Component: TypeAlias = Callable[[AnyStr], object]
"""Tests one component; what it returns is true where it matches."""
ANY_DEPTH: Final = None
"""Stands for any number of components, also none."""


class PathGlob(Generic[AnyStr]):
    """A pattern over the components of a path.

    Args:
        parts: a test for each component, at least one; ``ANY_DEPTH`` where any number of them may be.
    """

    __slots__ = ("_begun", "_deep", "_fixed", "_parts")

    def __init__(self, parts: Sequence[Component[AnyStr] | None]) -> None:
        once = [part for part, after in zip(parts, (*parts[1:], True), strict=True) if part or after is not ANY_DEPTH]
        self._parts: tuple[Component[AnyStr] | None, ...] = tuple(once)
        self._deep = frozenset(place for place, part in enumerate(once) if part is ANY_DEPTH)
        # The first place in the pattern that tells that a path has begun to match.
        self._begun = 2 if 0 in self._deep else 0
        fixed = [part for part in once if part is not ANY_DEPTH]
        # What has to stand at the path's end, or be all of it, where nothing else of the pattern varies.
        self._fixed: list[Component[AnyStr]] | None = fixed if self._deep <= {0} else None

    def matches(self, path: Sequence[AnyStr]) -> bool:
        """Tell whether the pattern matches exactly this path."""
        last = self._parts[-1]
        # The last component says no to almost every path, and costs least.
        if last is not ANY_DEPTH and (not path or not last(path[-1])):
            return False
        fixed = self._fixed
        if fixed is None:
            return len(self._parts) in self._places(path)
        size = len(fixed)
        if len(path) < size or (not self._begun and len(path) != size):
            return False
        return _agree(fixed, path[len(path) - size :])

    def may_match_below(self, path: Sequence[AnyStr]) -> bool:
        """Tell whether the pattern may match something in this directory, or the directory itself."""
        return bool(self._places(path))

    def leads_on(self, path: Sequence[AnyStr]) -> bool:
        """Tell whether the end of ``path`` is the beginning of what the pattern names, which lies below it."""
        fixed = self._fixed
        if fixed is None:
            return any(self._begun <= place < len(self._parts) for place in self._places(path))
        longest = len(fixed) - 1
        if not self._begun:
            return len(path) <= longest and _agree(fixed, path)
        return any(_agree(fixed, path[len(path) - size :]) for size in range(1, min(longest, len(path)) + 1))

    def ends_in(self, name: AnyStr) -> bool:
        """Tell whether the pattern can match a path whose last component is ``name``."""
        last = self._parts[-1]
        return last is ANY_DEPTH or bool(last(name))

    def _places(self, path: Sequence[AnyStr]) -> set[int]:
        """Return the places in the pattern that can be reached after the components."""
        parts, deep = self._parts, self._deep
        places = {0, 1} if 0 in deep else {0}
        for name in path:
            after: set[int] = set()
            for place in places:
                if place in deep:
                    after.update((place, place + 1))
                elif place < len(parts) and parts[place](name):  # type: ignore[misc] # it is none of the deep ones
                    after.add(place + 1)
                    if place + 1 in deep:
                        after.add(place + 2)
            places = after
            if not places:
                break
        return places


def _agree(parts: Sequence[Component[AnyStr]], path: Sequence[AnyStr]) -> bool:
    """Tell whether each component of ``path`` is as the pattern says; what is left of either does not count."""
    return all(part(name) for part, name in zip(parts, path, strict=False))
