"""Names the few tests that failed beside others, so that ``scripts/test`` runs them once more by themselves.

A machine that others use as well may keep a test from what it waits for. A test that fails by itself, too, is a
failure; one that passes then is told, and is a fault of the test. Where many fail, or where a worker was lost and with
it the tests that it had not begun, nothing is tried again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

PLACE: Final = "SUBLET_TEST_ONCE_MORE"
"""The variable that names the file."""
MOST: Final = 4


class OnceMore:
    """What failed in a run."""

    def __init__(self) -> None:
        self._failed: dict[str, None] = {}
        self._is_whole = True

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Take what became of a test, or of a module that is collected."""
        if report.failed:
            self._failed[report.nodeid] = None
            self._is_whole &= isinstance(report, pytest.TestReport)

    def lost(self) -> None:
        """Note that a worker has ended before its tests."""
        self._is_whole = False

    def write(self, status: int) -> None:
        """Name the tests in the file that the environment names, a line each, if they may be run once more."""
        place = os.environ.get(PLACE)
        if place and "PYTEST_XDIST_WORKER" not in os.environ:
            again = self._is_whole and status == pytest.ExitCode.TESTS_FAILED and len(self._failed) <= MOST
            Path(place).write_text("".join(f"{name}\n" for name in self._failed) if again else "", encoding="utf-8")
