"""Finds out which tests call which functions, and how long they take, as the tests are without a change."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import pytest

from mutants.decides import PACKAGE, ROOT
from mutants.kept import digest_of_folder, forget_oldest

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


class Remembered:
    """What was observed before, by test module, as long as neither it nor the product nor helpers of tests change.

    Args:
        place: a directory; None remembers nothing.
    """

    def __init__(self, place: Path | None) -> None:
        self._place = place
        trees = "" if place is None else "".join(digest_of_folder(ROOT / tree) for tree in ("src", "tests/support"))
        self._others = trees

    def of(self, module: Path) -> dict[str, Observed] | None:
        """Return what was observed, by the ids of tests; None where a module has to be observed."""
        path = self._path(module)
        if path is None or not path.exists():
            return None
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {
            test: Observed(seconds, frozenset((str(PACKAGE / file), name) for file, name in called))
            for test, (seconds, called) in rows.items()
        }

    def keep(self, module: Path, found: Mapping[str, Observed]) -> None:
        """Remember a module."""
        path = self._path(module)
        if path is None:
            return
        rows = {
            test: [seen.seconds, sorted([str(Path(file).relative_to(PACKAGE)), name] for file, name in seen.called)]
            for test, seen in found.items()
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        forget_oldest(path.parent, ".json")
        path.write_text(json.dumps(rows), encoding="utf-8")

    def _path(self, module: Path) -> Path | None:
        if self._place is None:
            return None
        name = module.relative_to(ROOT).as_posix().replace("/", ".")
        digest = hashlib.sha256(self._others.encode() + module.read_bytes()).hexdigest()[:20]
        return self._place / "observed" / name / f"{digest}.json"


def load(path: Path) -> dict[int, Observed]:
    """Return what ``observe`` wrote."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {
        number: Observed(seconds, frozenset((file, name) for file, name in called)) for number, seconds, called in rows
    }


def _run_one(item: pytest.Item, files: Collection[str]) -> Observed | None:
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        # For calls alone, as it returns no tracer of what is in them; that costs least.
        codes.add(frame.f_code)

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    started = time.process_time()
    threading.settrace(note)
    sys.settrace(note)
    try:
        passed = first_failure([item]) is None
    finally:
        sys.settrace(None)
        threading.settrace(None)
        signal.setitimer(signal.ITIMER_PROF, 0)
    called = frozenset((code.co_filename, code.co_qualname) for code in codes if code.co_filename in files)
    return Observed(time.process_time() - started, called) if passed else None


def first_failure(items: Sequence[pytest.Item], bounds: Sequence[float] = ()) -> int | None:
    """Run items in this process until one fails, and return which, or None where all pass.

    Args:
        items: what to run.
        bounds: how much processor time each may take; a longer one ends the process.
    """
    for number, item in enumerate(items):
        if bounds:
            signal.setitimer(signal.ITIMER_PROF, bounds[number])
        session = item.session
        failed = session.testsfailed
        following = items[number + 1] if number + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed > failed:
            return number
    return None


def run_items(items: Sequence[pytest.Item]) -> bool:
    """Run items in this process until one fails, and tell whether all passed."""
    return first_failure(items) is None
