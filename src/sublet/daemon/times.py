"""Wall-clock time as the journal and the views write it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def rfc3339(at: float | None = None) -> str:
    """Return ``at`` (Unix seconds; now by default) as RFC 3339 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unix_seconds(text: str) -> float:
    """Return the Unix time of an RFC 3339 timestamp.

    Raises:
        ValueError: it is none, or has no time zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a timestamp needs a time zone")
    return moment.timestamp()
