"""JSON that somebody wrote by hand: what says one thing twice says nothing."""

from __future__ import annotations

from typing import Any, Final

from sublet.protocol.bounded_json import parse_json

_MARK: Final = b"\xef\xbb\xbf"


def unique_json(raw: bytes) -> Any:
    """Return the JSON document in ``raw``; a byte order mark, which some editors write, is no part of it.

    Raises:
        ValueError: it is none in UTF-8, breaks a bound, or an object has a name twice: which one would count?
    """
    return parse_json(raw.removeprefix(_MARK))
