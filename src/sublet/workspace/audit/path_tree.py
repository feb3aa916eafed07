"""Values by path, of which each name is kept once, however long the path to it is.

An executor decides how many names there are and how deep they lie. A mapping by whole paths would keep those of all
directories above a name again for each name.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final, Generic, TypeVar, cast

V = TypeVar("V")
_SLASH: Final = b"/"
_NOTHING: Final = cast(Any, object())


class Branch(Generic[V]):
    """One directory: the values of its names, and the directories in it that have any."""

    __slots__ = ("below", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, V] = {}
        self.below: dict[bytes, Branch[V]] = {}


class PathTree(MutableMapping[bytes, V]):
    """A mapping by path; it is quickest where those of one directory follow one another."""

    def __init__(self, pairs: Iterable[tuple[bytes, V]] = ()) -> None:
        self.root: Branch[V] = Branch()
        self._last: tuple[bytes, Branch[V]] = (b"", self.root)
        for path, value in pairs:
            self[path] = value

    @classmethod
    def of(cls, values: Mapping[bytes, V]) -> PathTree[V]:
        """Return ``values`` as a tree, themselves where they are one."""
        return values if isinstance(values, PathTree) else cls(values.items())

    def __getitem__(self, path: bytes) -> V:
        """Return the value of ``path``."""
        above, _, name = path.rpartition(_SLASH)
        branch = self._branch(above)
        if branch is None:
            raise KeyError(path)
        return branch.values[name]

    def __contains__(self, path: object) -> bool:
        """Tell whether there is a value of ``path``."""
        return isinstance(path, bytes) and self.get(path, _NOTHING) is not _NOTHING

    def get(self, path: bytes, default: Any = None) -> Any:
        """Return the value of ``path``, or ``default``."""
        above, _, name = path.rpartition(_SLASH)
        branch = self._branch(above)
        return default if branch is None else branch.values.get(name, default)

    def __setitem__(self, path: bytes, value: V) -> None:
        """Keep ``value`` for ``path``."""
        above, _, name = path.rpartition(_SLASH)
        last, branch = self._last
        if above != last:
            branch = self.root
            for part in above.split(_SLASH) if above else ():
                found = branch.below.get(part)
                if found is None:
                    found = branch.below[part] = Branch()
                branch = found
            self._last = (above, branch)
        branch.values[name] = value

    def __delitem__(self, path: bytes) -> None:
        """Forget the value of ``path``; directories without any stay, and count for nothing."""
        above, _, name = path.rpartition(_SLASH)
        branch = self._branch(above)
        if branch is None:
            raise KeyError(path)
        del branch.values[name]

    def __len__(self) -> int:
        """Return how many paths have a value."""
        return sum(len(branch.values) for _, branch in self._branches())

    def __iter__(self) -> Iterator[bytes]:
        """Yield the paths, those of one directory after one another."""
        for path, _ in self._pairs():
            yield path

    def items(self) -> ItemsView[bytes, V]:
        """Return paths and values, in the order of ``__iter__``."""
        return _Items(self)

    def __eq__(self, other: object) -> bool:
        """Tell whether both have the same values by the same paths."""
        if not isinstance(other, Mapping):
            return NotImplemented
        others: PathTree[V] = PathTree.of(other)
        return not any(True for _ in differing(self, others))

    __hash__ = None  # type: ignore[assignment]

    def ordered(self) -> Iterator[tuple[bytes, V]]:
        """Yield paths and values, sorted by path."""
        empty: PathTree[V] = PathTree()
        for path, _, value in differing(empty, self):
            yield path, cast(V, value)

    def _branch(self, above: bytes) -> Branch[V] | None:
        last, branch = self._last
        if above == last:
            return branch
        found: Branch[V] | None = self.root
        for part in above.split(_SLASH) if above else ():
            found = found.below.get(part) if found is not None else None
        if found is not None:
            self._last = (above, found)
        return found

    def _branches(self) -> Iterator[tuple[bytes, Branch[V]]]:
        """Yield all directories with the paths that lead to what is in them."""
        yield b"", self.root
        # One iterator for each level: the paths of all directories together may be long.
        waiting = [(b"", iter(self.root.below.items()))]
        while waiting:
            above, below = waiting[-1]
            for name, branch in below:
                path = above + name + _SLASH
                yield path, branch
                waiting.append((path, iter(branch.below.items())))
                break
            else:
                waiting.pop()

    def _pairs(self) -> Iterator[tuple[bytes, V]]:
        for above, branch in self._branches():
            for name, value in branch.values.items():
                yield above + name, value


class _Items(ItemsView[bytes, V]):
    _mapping: PathTree[V]

    def __iter__(self) -> Iterator[tuple[bytes, V]]:
        return self._mapping._pairs()


def differing(before: PathTree[V], after: PathTree[V]) -> Iterator[tuple[bytes, V | None, V | None]]:
    """Yield each path whose values are not equal, with both of them, None where there is none; sorted by path.

    Neither may be changed meanwhile.
    """
    stack = [_differing_in(b"", before.root, after.root)]
    while stack:
        for path, old, new in stack[-1]:
            if isinstance(old, Branch) or isinstance(new, Branch):
                stack.append(_differing_in(path, cast(Any, old), cast(Any, new)))
                break
            yield path, old, new
        else:
            stack.pop()


def _differing_in(
    above: bytes, old: Branch[V] | None, new: Branch[V] | None
) -> Iterator[tuple[bytes, V | Branch[V] | None, V | Branch[V] | None]]:
    """Yield what differs in one directory, and the directories below it, where their paths belong."""
    olds, news = old.values if old else {}, new.values if new else {}
    changed: list[bytes] = []
    if olds != news:
        changed = [name for name in olds.keys() | news.keys() if olds.get(name) != news.get(name)]
    olds_below, news_below = old.below if old else {}, new.below if new else {}
    # A directory's name with a slash is in its place among names: no name holds one.
    below = [name + _SLASH for name in olds_below.keys() | news_below.keys()]
    for name in sorted([*changed, *below]):
        if name.endswith(_SLASH):
            yield above + name, olds_below.get(name[:-1]), news_below.get(name[:-1])
        else:
            yield above + name, olds.get(name), news.get(name)
