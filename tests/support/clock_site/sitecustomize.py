"""Lets the clock of a daemon under test be ahead or behind: its file says by how many milliseconds.

Python loads this file by itself in every process that has its directory on ``PYTHONPATH``, and ``support.sites`` in
every fork that has. Only where the variable ``SUBLET_TEST_CLOCK`` names a file does it do anything: what that file
holds is added to what ``time.time_ns`` tells, by which rooms go. It is looked at again every tenth of a second, so that
a clock can be set while the daemon runs. Times of certificates come from elsewhere and stay right, as those of links
are checked by the real clock.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

LOOK_SECONDS = 0.1


def _set_clock(path: Path) -> None:
    real, monotonic = time.time_ns, time.monotonic
    ahead, looked = 0, float("-inf")

    def time_ns() -> int:
        nonlocal ahead, looked
        if monotonic() - looked >= LOOK_SECONDS:
            looked = monotonic()
            try:
                ahead = int(path.read_text()) * 1_000_000
            except (OSError, ValueError):
                ahead = 0
        return real() + ahead

    time.time_ns = time_ns


if "SUBLET_TEST_CLOCK" in os.environ:
    _set_clock(Path(os.environ["SUBLET_TEST_CLOCK"]))
