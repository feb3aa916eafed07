"""RE2 as ``protocol.patterns`` uses it: by its inner call where that is there, else by the package's public functions.

The public functions count characters where we count bytes, and make an object for each match; the inner one returns
places in the bytes. Both give the same answers; the public way takes about three times as long.
"""

from __future__ import annotations

import functools
from typing import Any, Final, Protocol

PARTS: Final = ("Match", "NamedCapturingGroups", "NumberOfCapturingGroups", "Anchor", "error", "ok")
"""Of ``re2._re2.RE2``."""
MAX_PATTERN_MEMORY: Final = 32 << 20
"""Bytes that the engine may take for one pattern; a pattern that needs more is refused, or matched more slowly."""

_NOT_THERE: Final = (-1, -1)


class Engine(Protocol):
    """A compiled pattern over bytes."""

    def Match(self, anchor: Any, text: bytes, start: int, end: int) -> Any:
        """Return the spans of the match and of its groups; of none, the first one is (-1, -1)."""

    def NumberOfCapturingGroups(self) -> int:
        """Return how many groups there are."""

    def NamedCapturingGroups(self) -> Any:
        """Return pairs of name, in bytes, and number."""


class BadSource(ValueError):
    """The engine does not take the pattern; its text says why."""


class _PublicEngine:
    def __init__(self, source: bytes, options: Any) -> None:
        import re2

        try:
            self._compiled = re2.compile(source, options)
        except re2.error as error:
            why = error.args[0] if error.args else ""
            raise BadSource(why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)) from None
        compiled = self._compiled
        self._ways = (compiled.search, compiled.match, compiled.fullmatch)

    def Match(self, anchor: int, text: bytes, start: int, end: int) -> Any:
        found = self._ways[anchor](text, start, end)
        return [found.span(group) for group in range(self._compiled.groups + 1)] if found else [_NOT_THERE]

    def NumberOfCapturingGroups(self) -> int:
        count: int = self._compiled.groups
        return count

    def NamedCapturingGroups(self) -> Any:
        return list(self._compiled.groupindex.items())


def missing() -> list[str]:
    """Return the private parts that this version of the package lacks, by their names; nothing is the usual case."""
    import re2

    inner = getattr(getattr(re2, "_re2", None), "RE2", None)
    return [f"_re2.RE2.{name}" for name in PARTS if not hasattr(inner, name)]


@functools.cache
def anchors() -> tuple[Any, Any, Any]:
    """Return how the engine is told to look anywhere, at the beginning, and at the whole."""
    if missing():
        return 0, 1, 2
    import re2

    kinds = re2._re2.RE2.Anchor
    return kinds.UNANCHORED, kinds.ANCHOR_START, kinds.ANCHOR_BOTH


def engine(source: bytes, *, latin: bool) -> Engine:
    """Return the compiled pattern.

    Args:
        source: the pattern, in UTF-8, or as it is over bytes.
        latin: whether each byte of the text is a character.

    Raises:
        BadSource: the engine does not take it.
    """
    import re2  # 6 ms, which a command that matches nothing does not pay

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_MEMORY
    if latin:
        options.encoding = re2.Options.Encoding.LATIN1
    if anchors()[0] == 0 and missing():
        return _PublicEngine(source, options)
    made: Any = re2._re2.RE2(source, options)
    if not made.ok():
        raise BadSource(made.error().decode("utf-8", "replace"))
    compiled: Engine = made
    return compiled
