"""Patterns of names: how they are written, and whether they match (DESIGN 4.4).

A pattern without a slash matches a name at any depth, and with it all that lies below. A pattern with a slash is
anchored at the root of the directory (``/build`` is the top-level one only); after a leading ``**/`` it matches at any
depth. Each component is an ``fnmatch`` pattern over bytes: ``*``, ``?`` and ``[…]`` match within one name.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.path_globs import Component, PathGlob
from sublet.protocol.patterns import Pattern, glob_source

MAX_PATTERN_BYTES: Final = 1_024

_ANY_DEPTH = b"**"
_CLOSED = Pattern(rb"(?:[^\[]|\[(?:!.|[^!])[^\]]*\])*", dot_all=True)
"""A component in which every ``[`` begins a class that ends; ``fnmatch`` takes any other for the character itself."""
_SHORT_GIT = Pattern(rb"git~[0-9]")
_NOT_SHOWN: Final = frozenset({"Cf"})
"""Categories of characters that show nothing."""
PathPattern: TypeAlias = PathGlob[bytes]
"""A pattern of several components, or one that is anchored."""


def fold(name: bytes) -> bytes:
    """Return a name as any file system may compare it.

    Letters of either case are the same for many; composed, wide and other compatible forms of a letter for some, and
    characters that show nothing count for nothing there (HFS+); where files have streams and endings of dots and
    blanks, these are no part of the name (NTFS), and ``git~1`` is a short name of ``.git``.
    """
    if name.isascii():
        folded = name.lower()
    else:
        text = unicodedata.normalize("NFKC", name.decode("utf-8", "surrogateescape")).casefold()
        shown = "".join(char for char in text if unicodedata.category(char) not in _NOT_SHOWN)
        folded = unicodedata.normalize("NFKC", shown).encode("utf-8", "surrogateescape")
    stem = folded.partition(b":")[0].rstrip(b". ") or folded
    return b".git" if _SHORT_GIT.fullmatch(stem) else stem


class AnyOf:
    """Patterns of one component: those that hold whatever the case as one expression, the others as one more."""

    __slots__ = ("_folded", "_written")

    def __init__(self, folded: Iterable[bytes], written: Iterable[bytes]) -> None:
        self._folded = _alternatives(folded)
        self._written = _alternatives(written)

    def matches(self, name: bytes) -> bool:
        """Tell whether one of them matches this component."""
        return bool(
            (self._folded is not None and self._folded.match(fold(name)))
            or (self._written is not None and self._written.match(name))
        )


class PatternSet:
    """Patterns of one purpose: names as one, paths one by one.

    ``last_folded`` and ``last_written`` are the last components of all of them; ``floats`` tells whether any of them
    matches at any depth.
    """

    __slots__ = ("floats", "last_folded", "last_written", "names", "paths")

    def __init__(self, patterns: Iterable[str], *, fold: bool, smart_case: bool = False) -> None:
        folded: list[bytes] = []
        written: list[bytes] = []
        self.last_folded: list[bytes] = []
        self.last_written: list[bytes] = []
        paths: list[PathPattern] = []
        self.floats = False
        for pattern in patterns:
            components, floating, anchored = _split(pattern)
            as_written = not fold or (smart_case and any(c.lower() != c for c in components))
            sources = [_translate(c if as_written else c.lower()) for c in components]
            (self.last_written if as_written else self.last_folded).append(sources[-1])
            if len(sources) == 1 and not anchored:
                (written if as_written else folded).append(sources[0])
            else:
                tests = [_component(source, folded=not as_written) for source in sources]
                paths.append(PathGlob([None, *tests] if floating else tests))
                self.floats = self.floats or floating
        self.names = AnyOf(folded, written)
        self.paths = tuple(paths)
        self.floats = self.floats or bool(folded or written)

    def path_matches(self, parts: Sequence[bytes]) -> bool:
        """Tell whether a path pattern names exactly this path."""
        return any(p.matches(parts) for p in self.paths)

    def paths_ending_in(self, name: bytes) -> tuple[PathPattern, ...]:
        """Return the path patterns whose last component matches ``name``; for nearly every name there is none."""
        return tuple(p for p in self.paths if p.ends_in(name))


def _split(pattern: str) -> tuple[list[bytes], bool, bool]:
    """Return the components of ``pattern``, whether it matches at any depth, and whether it is anchored."""
    raw = os.fsencode(pattern)
    anchored = raw.startswith(b"/")
    components = raw.strip(b"/").split(b"/")
    floating = components[0] == _ANY_DEPTH and len(components) > 1
    if floating:
        components = components[1:]
    if len(components) > 1 and components[-1] == _ANY_DEPTH:
        components, anchored = components[:-1], anchored or not floating  # all below is meant by the name itself
    if len(raw) > MAX_PATTERN_BYTES or b"\0" in raw:
        raise _bad_pattern(pattern, f"is longer than {MAX_PATTERN_BYTES} bytes or holds a NUL")
    if any(c in (b"", b".", b"..") for c in components):
        raise _bad_pattern(pattern, "has an empty, . or .. component and can never match")
    if _ANY_DEPTH in components:
        raise _bad_pattern(pattern, "has ** elsewhere than at its beginning")
    if any(_ANY_DEPTH in c or not _CLOSED.fullmatch(c) for c in components):
        raise _bad_pattern(pattern, "has ** within a name, or a [ that is not closed")
    return components, floating, anchored or (len(components) > 1 and not floating)


def _bad_pattern(pattern: str, why: str) -> SubletError:
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        f"the name pattern {pattern[:80]!r} {why}",
        "Write a name such as *.pem, a path from the workspace root such as conf/secret, or **/ before either.",
    )


def _component(source: bytes, *, folded: bool) -> Component[bytes]:
    """Return the test of one component; a folded one holds for all names that may be taken for the same."""
    match = Pattern(source, static=False).match
    return (lambda name: match(fold(name))) if folded else match


def _translate(component: bytes) -> bytes:
    return glob_source(component)


def _alternatives(sources: Iterable[bytes]) -> Pattern[bytes] | None:
    joined = b"|".join(b"(?:" + s + b")" for s in sources)
    return Pattern(joined, static=False) if joined else None
