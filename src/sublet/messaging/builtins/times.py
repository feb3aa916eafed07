"""Times as they are written: RFC 3339 in UTC with milliseconds, for display only."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=16)
def rfc3339(at_ms: int) -> str:
    """Return a time, Unix milliseconds, as text."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> int | None:
    """Return the time, Unix milliseconds, that a text names; None where it names none."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1_000)
    except (ValueError, OverflowError):
        return None
