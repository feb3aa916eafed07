"""The moment by which grants are held to their time: by two clocks, of which a person can set one alone."""

from __future__ import annotations

import functools
import time
from contextlib import suppress
from pathlib import Path

from sublet.policy.grants import Moment

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def moment() -> Moment:
    """Return now by the clock that people set and by the one that runs from the machine's start."""
    return Moment(time.time(), _boot(), time.clock_gettime(time.CLOCK_BOOTTIME))


@functools.cache
def _boot() -> str:
    with suppress(OSError):
        return _BOOT_ID.read_text("ascii").strip()
    return ""
