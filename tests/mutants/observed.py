"""Finds out which tests call which functions, and how long they take, as the tests are without a change."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

MOST_SECONDS: Final = 3.0
"""Of processor time, with its calls being noted: a test that takes longer is left aside."""


class TooSlow(BaseException):
    """Ends a test that takes too long; no test catches it."""


@dataclass(frozen=True)
class Observed:
    """One test without a change."""

    seconds: float
    called: frozenset[tuple[str, str]]
    """File and qualified name of each function of the modules that decide."""


def observe(items: Sequence[pytest.Item], numbers: Sequence[int], files: Collection[str], into: Path) -> int:
    """Run these items and write down a line of JSON for each that passed in time."""
    with into.open("w", encoding="utf-8") as written:
        for number in numbers:
            seen = _run_one(items[number], files)
            if seen is not None:
                written.write(json.dumps([number, seen.seconds, sorted(seen.called)]) + "\n")
                written.flush()
    return 0


def load(path: Path) -> dict[int, Observed]:
    """Return what ``observe`` wrote."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {
        number: Observed(seconds, frozenset((file, name) for file, name in called)) for number, seconds, called in rows
    }


def _run_one(item: pytest.Item, files: Collection[str]) -> Observed | None:
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename in files:
            called.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    started = time.process_time()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        passed = first_failure([item]) is None
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        signal.setitimer(signal.ITIMER_PROF, 0)
    return Observed(time.process_time() - started, frozenset(called)) if passed else None


def first_failure(items: Sequence[pytest.Item]) -> int | None:
    """Run items in this process until one fails, and return which, or None where all pass."""
    for number, item in enumerate(items):
        session = item.session
        failed = session.testsfailed
        following = items[number + 1] if number + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed > failed:
            return number
    return None
