"""What all requests and answers of the daemon have in common."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticSerializationError

from sublet.protocol.text import clean_line
from sublet.protocol.times import told_time

MAX_WORD_CHARS: Final = 256
MAX_WAIT_SECONDS: Final = 45.0
"""No call waits longer: MCP hosts give up at 60 s."""
MAX_PAGE: Final = 500
"""Entries that a list has at most."""


def _line(text: object) -> object:
    return clean_line(text, MAX_WORD_CHARS) if isinstance(text, str) else text


ToldTime = Annotated[str, BeforeValidator(told_time)]
"""A time in a view that a member of a room has said."""
ToldLine = Annotated[str, BeforeValidator(_line)]
"""A short text in a view that a member of a room has said, without control characters."""


class Request(BaseModel):
    """Base of requests: unknown names are errors."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)


class View(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(defer_build=True, frozen=True)


def size_of(text: str) -> int:
    """Return how many bytes ``text`` is, which rules may look at."""
    return len(text.encode("utf-8", "surrogatepass"))


def json_of(view: BaseModel) -> str:
    """Return a view as JSON under the names of the wire. Bytes that are not UTF-8 appear as ``\\xNN``."""
    try:
        return view.model_dump_json(by_alias=True)
    except PydanticSerializationError:
        return json.dumps(in_utf8(view.model_dump(mode="json", by_alias=True)))


def in_utf8(value: Any) -> Any:
    """Return JSON with its strings in UTF-8: other bytes, which Python keeps as surrogates, appear as ``\\xNN``."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {in_utf8(name): in_utf8(one) for name, one in value.items()}
    return [in_utf8(one) for one in value] if isinstance(value, list) else value
