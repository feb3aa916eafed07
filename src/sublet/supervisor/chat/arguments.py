"""The arguments of a tool call as a model wrote them: read, mended where that is safe, and checked. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sublet.protocol.bounded_json import parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.patterns import Pattern

MAX_DEPTH: Final = 32
_FENCE = Pattern(r"```[a-z]*\s*\n(.*)\n```\s*\Z", dot_all=True)


class BadArguments(ValueError):
    """A call can't be made as it was written; its text tells the model why."""


def read_arguments(text: str) -> dict[str, JsonValue]:
    """Return the object that ``text`` is, or that it can be taken for without guessing at contents.

    Mended are: nothing at all, a fence around, an object written as a string, bare line breaks in strings and commas
    before a closing bracket. What was cut off is not mended, as half a file would be written.

    Raises:
        BadArguments: it is no JSON object.
    """
    stripped = text.strip()
    if not stripped:
        return {}
    attempts: tuple[Callable[[str], str], ...] = (str, _unfenced, lambda one: _without_commas(_unfenced(one)))
    for attempt in attempts:
        try:
            value = parse_json(attempt(stripped), strict=False)
            if isinstance(value, str):
                value = parse_json(value, strict=False)
        except ValueError:
            continue
        if not isinstance(value, dict):
            raise BadArguments("the arguments have to be one JSON object")
        _check(value, 0)
        return value
    raise BadArguments("the arguments are no valid JSON; send one complete JSON object, shorter if it was cut off")


def _unfenced(text: str) -> str:
    found = _FENCE.match(text)
    return found[1] if found else text


def _without_commas(text: str) -> str:
    """Return ``text`` without commas before a closing bracket, strings left as they are."""
    kept: list[str] = []
    inside = escaped = False
    for char in text:
        if inside:
            inside = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            inside = True
        elif char in "]}":
            at = len(kept) - 1
            while at >= 0 and kept[at].isspace():
                at -= 1
            if at >= 0 and kept[at] == ",":
                kept[at] = ""
        kept.append(char)
    return "".join(kept)


def _check(value: JsonValue, depth: int) -> None:
    """Refuse what is nested too deep, and text that is none in UTF-8."""
    if depth > MAX_DEPTH:
        raise BadArguments("the arguments are nested too deep")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadArguments("the arguments hold half a character") from None
    elif isinstance(value, dict):
        for name, inner in value.items():
            _check(name, depth + 1)
            _check(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, depth + 1)
