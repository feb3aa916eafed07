"""The tool that shows a delegation, one page of one section at a time."""

from __future__ import annotations

import anyio
import anyio.to_thread

from sublet.daemon.api.delegation_fields import OneWithPatch
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import AUDIT_DELEGATION
from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.mcp_server.answers import Answer, Delegation, Section
from sublet.mcp_server.arguments import DelegateOutput
from sublet.mcp_server.call import Call, ended
from sublet.mcp_server.panel_tools import panel_output
from sublet.mcp_server.present import (
    CURSOR_RESERVE,
    MAX_ANSWER_CHARS,
    files_text,
    next_step,
    present,
    summary_text,
    with_page,
)
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventKind
from sublet.protocol.ids import is_panel

EVENTS_PER_READ = 100
MAX_READS = 10


async def delegate_output(call: Call, given: DelegateOutput) -> Answer:
    """Show a delegation and one page of one section of it. Reading never consumes."""
    if is_panel(given.delegation_id):
        return await panel_output(call, given)
    view = await call.view(given.delegation_id)
    if given.section == "log":
        since, offset = _log_cursor(given.cursor)
        view = await call.follow(view, given.wait_seconds, since=since, until_end=False)
        return await _log_page(call, view, since, offset, waited=given.wait_seconds > 0)
    view = await call.follow(view, given.wait_seconds, since=view.cursor, until_end=True)
    start = int(given.cursor.partition(":")[0])
    whole = await _section(call, view, given)
    reserved = present(view, waited=given.wait_seconds > 0, section=given.section, cursor=CURSOR_RESERVE)
    shown, length = with_page(reserved, given.section, whole[start:])
    end = min(start, len(whole)) + length
    return with_next_page(shown, view, given.section, str(end), more=end < len(whole))


async def _section(call: Call, view: DelegationView, given: DelegateOutput) -> str:
    if given.section == "summary":
        return summary_text(view)
    if given.section == "files" and view.audit is None:
        return files_text(view, None)
    if not ended(view):
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"there is no {given.section} before the delegation is over; it is {view.state}",
            "Call delegate_output with section='log', or wait with wait_seconds.",
        )
    asked = OneWithPatch(delegation_id=view.delegation_id, patch=given.section == "patch")
    report = await call.operations.call(AUDIT_DELEGATION, asked)
    if given.section == "files":
        return await anyio.to_thread.run_sync(files_text, view, report)  # thousands of names take a while
    return report.patch or ""


def _log_cursor(cursor: str) -> tuple[int, int]:
    seq, _, offset = cursor.partition(":")
    return int(seq), int(offset or 0)


async def _log_page(call: Call, view: DelegationView, since: int, offset: int, *, waited: bool) -> Answer:
    """Return a page of the log after event ``since``, of whose first output event ``offset`` characters are read.

    A cursor is ``seq`` or, inside a long event, ``seq:offset`` where ``seq`` is the event before it.
    """
    shown = present(view, waited=waited, cursor=CURSOR_RESERVE)
    pieces: list[tuple[int, str]] = []  # the cursor before the piece, and what is left of the piece
    cursor, chars, dropped, full = since, 0, 0, False
    for _ in range(MAX_READS):
        asked = ReadEvents(cursor=cursor, delegation_id=view.delegation_id, limit=EVENTS_PER_READ)
        page = await call.operations.call(READ_EVENTS, asked)
        for event in page.events:
            if event.kind is EventKind.DELEGATION_OUTPUT:
                text = _output(event)[offset if not pieces else 0 :]
                pieces.append((cursor, text))
                chars += len(text)
                dropped = _dropped(event)
            cursor = event.seq
            if chars >= MAX_ANSWER_CHARS:
                break
        full = len(page.events) >= EVENTS_PER_READ
        if not full or chars >= MAX_ANSWER_CHARS:
            break
    shown = shown.model_copy(update={"log_chars_lost": dropped or None})
    answer, length = with_page(shown, "log", "".join(text for _, text in pieces))
    position = _position(pieces, offset, length)
    more = position is not None or full
    return with_next_page(answer, view, "log", position or str(cursor), more=more)


def with_next_page(
    answer: Delegation, view: DelegationView, section: Section, cursor: str, *, more: bool
) -> Delegation:
    """Return a page with where the next one begins, and which call reads it."""
    told = next_step(view, section, cursor, more=more)
    return answer.model_copy(update={"next_cursor": cursor, "more": more, "next_step": told})


def _position(pieces: list[tuple[int, str]], offset: int, length: int) -> str | None:
    """Return the cursor after ``length`` characters of ``pieces``; None at their end."""
    for number, (before, text) in enumerate(pieces):
        if length < len(text):
            read = length + (offset if number == 0 else 0)
            return f"{before}:{read}" if read else str(before)
        length -= len(text)
    return None


def _output(event: Event) -> str:
    text = event.data.get("text")
    return text if isinstance(text, str) else ""


def _dropped(event: Event) -> int:
    """Return how many characters of the whole log were not kept up to ``event``."""
    count = event.data.get("dropped_chars")
    return count if isinstance(count, int) else 0
