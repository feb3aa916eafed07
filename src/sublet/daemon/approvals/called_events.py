"""What the journal holds of a call that passed a gate: how it began and how it ended, whichever gate it was.

All of it is bounded here: what an agent or a host names and passes, and what is told of the end, is text of others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from sublet.policy.recorded import DECIDED, Record
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKind
from sublet.protocol.text import clean_line

MAX_ARGUMENTS_CHARS: Final = 2_048
"""Characters of canonical arguments, or of a result, that an event holds; of longer ones it holds the digest alone."""
MAX_PATHS: Final = 32
MAX_TOOL_CHARS: Final = 500
MAX_CALL_ID_CHARS: Final = 200
MAX_ERROR_CHARS: Final = 500


def tool_name(tool: str) -> str:
    """Return the name of a tool as events hold it."""
    return clean_line(tool, MAX_TOOL_CHARS)


def call_name(call_id: str) -> str:
    """Return the id of a call as events and the audit log hold it."""
    return clean_line(call_id, MAX_CALL_ID_CHARS)


def path_names(paths: Sequence[str]) -> list[JsonValue]:
    """Return the first of ``paths`` as events and questions hold them."""
    return [clean_line(path) for path in paths[:MAX_PATHS]]


def begun(tool: str, digest: str, canonical: str, record: Record) -> dict[str, JsonValue]:
    """Return what the ``tool_call`` event of any gate says.

    Args:
        tool: its name, as the caller wrote it.
        digest: of the arguments.
        canonical: the arguments, as canonical JSON.
        record: what policy decided, and by which documents.
    """
    data: dict[str, JsonValue] = {"tool": tool_name(tool), "digest": digest, DECIDED: record.data()}
    if len(canonical) <= MAX_ARGUMENTS_CHARS:
        data["arguments"] = canonical
    return data


def ended(error: str | None, result: Mapping[str, JsonValue] | None = None) -> tuple[EventKind, dict[str, JsonValue]]:
    """Return the kind of the event that tells a call's end, and what it says of the end.

    Args:
        error: why it failed, or None where it was done.
        result: what it came to, where that is told.
    """
    if error is not None:
        return EventKind.TOOL_ERROR, {"error": clean_line(error, MAX_ERROR_CHARS)}
    if not result:
        return EventKind.TOOL_RESULT, {}
    fits = len(json.dumps(dict(result))) <= MAX_ARGUMENTS_CHARS
    return EventKind.TOOL_RESULT, {"result": dict(result) if fits else None}


def not_done(reason: str) -> str:
    """Return the error of a call that was allowed and did not begin all the same."""
    return f"not done: {reason}"
