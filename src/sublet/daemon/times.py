"""The time as the journal and the views write it, and as grants are held against it."""

from __future__ import annotations

import functools
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from sublet.policy.grants import Moment

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def moment() -> Moment:
    """Return now by the clock that people set and by the one that runs from the machine's start."""
    return Moment(time.time(), _boot(), time.clock_gettime(time.CLOCK_BOOTTIME))


def rfc3339(at: float | None = None) -> str:
    """Return ``at`` (Unix seconds; now by default) as RFC 3339 in UTC with milliseconds."""
    when = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unix_seconds(text: str) -> float:
    """Return the Unix time of an RFC 3339 timestamp.

    Raises:
        ValueError: it is none, or has no time zone.
    """
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError("a timestamp needs a time zone")
    return when.timestamp()


@functools.cache
def _boot() -> str:
    with suppress(OSError):
        return _BOOT_ID.read_text("ascii").strip()
    return ""
