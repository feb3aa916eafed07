"""From what peers and the audit say to what a user is shown: cleaned, bounded, with codes that fit."""

from __future__ import annotations

from sublet.daemon.models import ResultView
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import Done, Error
from sublet.protocol.text import MAX_SUMMARY_CHARS, clean, clean_line, clean_name


def refusal(error: Error, peer: str) -> SubletError:
    """Return a peer's ERROR as ours: its code, and its words as the peer's."""
    return SubletError(error.code, f"{peer}: {clean_line(error.message)}", clean_line(error.hint))


def result_view(done: Done) -> ResultView:
    """Return a peer's DONE as it is shown."""
    return ResultView(
        final_summary=clean(done.final_summary, MAX_SUMMARY_CHARS),
        highlights=[clean_name(path) for path in done.highlights],
        notes=clean(done.notes),
        exit_code=done.sublet.exit_code,
    )
