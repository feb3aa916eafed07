"""Cursors of lists: of ``resources/list`` the last delegation that was told, and how many rooms were; else none."""

from __future__ import annotations

import mcp.types as t
from mcp.shared.exceptions import MCPError

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import WIRE_DELEGATION_ID

MAX_PLACE_CHARS = 64
MAX_PLACE_DIGITS = 9


def place_of(cursor: str | None) -> tuple[str | None, int | None]:
    """Return before which delegation (all where empty) and with which room a page begins; None where all were told.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a cursor that no page has given.
    """
    if cursor is None:
        return "", 0
    before, divided, start = cursor.partition(":")
    known = not before or (len(before) <= MAX_PLACE_CHARS and WIRE_DELEGATION_ID.match(before) is not None)
    counted = not start or (len(start) <= MAX_PLACE_DIGITS and start.isascii() and start.isdigit())
    if not (divided and known and counted and (before or start)):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "there is no such cursor", "Begin without one.")
    return before or None, int(start) if start else None


def cursor_of(before: str | None, start: int | None) -> str | None:
    """Return the cursor with which the next page begins, as ``place_of`` reads it; None where all were told."""
    if before is None and start is None:
        return None
    return f"{before or ''}:{'' if start is None else start}"


def check_only_page(params: t.PaginatedRequestParams | None) -> None:
    """Refuse a cursor of a list that is told whole.

    Raises:
        MCPError: there is one.
    """
    if params is not None and params.cursor is not None:
        raise MCPError(t.INVALID_PARAMS, "there is no such cursor: this list has one page")
