"""Regular expressions of a schema on an engine whose time grows with the text only: none of them can hang."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from sublet.protocol.patterns import Pattern

MAX_PATTERN_CHARS: Final = 500
MAX_REPEATS: Final = 1_000
"""What the counted repetitions of one pattern may multiply to."""
_COUNTED: Final = Pattern(r"\{(\d{1,6})(?:,(\d{0,6}))?\}")
_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_"}
_BRACKETS: Final = frozenset("[]")
_OPERATORS: Final = frozenset("[&~")
"""What the engine takes for more than itself between brackets."""


class BadPattern(ValueError):
    """A pattern that is none, or that this engine does not have: look-around and back-references."""


class LinearPattern:
    """One ``pattern`` of JSON Schema, searched for as ECMA-262 means it: ``\\d`` and ``\\w`` are ASCII.

    Raises:
        BadPattern: it can't be searched for in linear time, or is too large.
    """

    def __init__(self, source: str) -> None:
        if len(source) > MAX_PATTERN_CHARS:
            raise BadPattern(f"a pattern has at most {MAX_PATTERN_CHARS} characters")
        repeats = 1
        for counted in _COUNTED.finditer(source):
            repeats *= max(1, int(counted[2] or counted[1]))
        if repeats > MAX_REPEATS:
            raise BadPattern(f"the counted repetitions of {source[:60]!r} multiply to more than {MAX_REPEATS}")
        try:
            constraint = StringConstraints(pattern="".join(_translated(source)))
            self._search: TypeAdapter[Any] = TypeAdapter(Annotated[str, constraint])
        except SchemaError as error:
            reason = str(error).strip().splitlines()[-1].strip()
            raise BadPattern(f"the pattern {source[:60]!r} can't be used: {reason[:200]}") from None

    def matches(self, text: str) -> bool:
        """Tell whether ``text`` holds a match anywhere."""
        try:
            self._search.validate_python(text)
        except ValidationError:
            return False
        return True


def _translated(source: str) -> Iterator[str]:
    """Say an ECMA-262 pattern to the engine: its classes are ASCII, and between brackets others mean themselves."""
    within, at = False, 0
    while at < len(source):
        char = source[at]
        at += 1
        if char == "\\" and at < len(source):
            escaped = source[at]
            at += 1
            ascii_class = _CLASSES.get(escaped.lower())
            if ascii_class is None:
                yield char + escaped
            elif escaped.isupper():
                yield f"[^{ascii_class}]"
            else:
                yield ascii_class if within else f"[{ascii_class}]"
        elif within and char in _OPERATORS:
            yield "\\" + char
        else:
            if char in _BRACKETS:
                within = char == "["
            yield char
