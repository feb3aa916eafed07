"""The time as the journal and the views write it, and as grants are held against it."""

from __future__ import annotations

import functools
import time
from contextlib import suppress
from pathlib import Path

from sublet.policy.grants import Moment
from sublet.protocol.times import rfc3339_of, unix_seconds

__all__ = ["moment", "rfc3339", "unix_seconds"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def moment() -> Moment:
    """Return now by the clock that people set and by the one that runs from the machine's start."""
    return Moment(time.time(), _boot(), time.clock_gettime(time.CLOCK_BOOTTIME))


def rfc3339(at: float | None = None) -> str:
    """Return ``at`` (Unix seconds; now by default) as RFC 3339 in UTC with milliseconds."""
    return rfc3339_of(time.time() if at is None else at)


@functools.cache
def _boot() -> str:
    with suppress(OSError):
        return _BOOT_ID.read_text("ascii").strip()
    return ""
