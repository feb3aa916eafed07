"""A plugin of pytest that collects once, and then drops fields, each in a fork that runs the tests that may notice."""

from __future__ import annotations

import inspect
import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

from fields.dropping import STATE, hook
from mutants.forks import Job, run_forked
from mutants.observed import TooSlow, run_items
from mutants.plugin import QUIET

RED, GREEN, TOO_SLOW = 0, 1, 2
"""How the tests of a field ended without it."""
MOST_SECONDS: Final = 20.0
"""Of processor time, that the tests of a field may take."""
MOST_WAITED: Final = 20
"""Seconds after which a test without its field counts as one that hangs, which shows nothing."""
MOST_NOTED: Final = 4.0
"""Of processor time, that a test may take to be of use."""
OBSERVING_SECONDS: Final = 900.0
_REFUSES: Final = re.compile(
    r"refus|bad|malformed|unknown|never|schema|wrong|fit|misspelt|no_effect|warn|example|page", re.IGNORECASE
)
"""Names of tests of what is not accepted: those of an effect are tried before them."""


@dataclass(frozen=True)
class Row:
    """A field, and the test that is to turn red without it: its id, without what it is parametrized with."""

    field: str
    test: str


@dataclass
class Trial:
    """Rows to be tried, and how each ended."""

    rows: Sequence[Row]
    workers: int
    ends: dict[Row, str] = field(default_factory=dict)
    """Why a row is wrong; empty for one that is true."""

    def run(self, items: Sequence[pytest.Item]) -> None:
        """Run each named test as things are, then each without its field."""
        found: dict[str, list[pytest.Item]] = {}
        for item in items:
            found.setdefault(item.nodeid.partition("[")[0], []).append(item)
        tests = sorted({row.test for row in self.rows})
        missing = [test for test in tests if test not in found]
        jobs = (Job(tests.index(test), partial(_plain, found[test]), MOST_SECONDS) for test in tests if test in found)
        broken = {tests[key] for key, code in run_forked(jobs, self.workers, float("inf")) if code != GREEN}
        for row in self.rows:
            if row.test in missing:
                self.ends[row] = f"there is no {row.test}"
            elif row.test in broken:
                self.ends[row] = f"{row.test} fails with the field as well"
        left = [row for row in self.rows if row not in self.ends]
        jobs = (Job(key, partial(without, row.field, found[row.test]), MOST_SECONDS) for key, row in enumerate(left))
        for key, code in run_forked(jobs, self.workers, float("inf")):
            row = left[key]
            self.ends[row] = "" if code == RED else f"{row.test} does not notice that it is gone"


@dataclass
class Search:
    """Fields for which a test is searched, and those that were found."""

    fields: Sequence[str]
    workers: int
    most: int
    """How many tests are tried for a field."""
    found: dict[str, str] = field(default_factory=dict)

    def run(self, items: Sequence[pytest.Item]) -> None:
        """See which tests are given which fields, then drop each field in those that are, the quickest first."""
        seen = self._observe(items)
        jobs = []
        for key, name in enumerate(self.fields):
            word = name.rpartition(".")[2].strip("_*")
            able = [(number, seconds) for number, (seconds, given) in seen.items() if name in given]
            able.sort(key=lambda one: (one[1] > 1, _likeness(items[one[0]], word), one[1]))
            tests = [items[number] for number, _ in able[: self.most]]
            if tests:
                jobs.append(Job(key, partial(self._first, name, tests), 4 * MOST_SECONDS))
            print(f"candidates\t{name}\t{len(able)}", file=sys.stderr, flush=True)
        for key, code in run_forked(jobs, self.workers, float("inf")):
            name = self.fields[key]
            if 10 <= code < 10 + self.most:
                test = jobs_by_key(jobs)[key].work.args[1][code - 10].nodeid  # type: ignore[attr-defined]
                self.found[name] = test
                print(f"found\t{name}\t{test}", file=sys.stderr, flush=True)
            else:
                print(f"none\t{name}\t{code}", file=sys.stderr, flush=True)

    def _first(self, name: str, tests: Sequence[pytest.Item]) -> int:
        STATE.dropped = name
        for number, test in enumerate(tests):
            signal.alarm(MOST_WAITED)
            if not run_items([test]):
                return 10 + number
        return 0

    def _observe(self, items: Sequence[pytest.Item]) -> Mapping[int, tuple[float, frozenset[str]]]:
        with tempfile.TemporaryDirectory() as scratch:
            shards = self.workers * 16
            places = [Path(scratch) / str(shard) for shard in range(shards)]
            jobs = [
                Job(shard, partial(_note, items, range(shard, len(items), shards), place), OBSERVING_SECONDS)
                for shard, place in enumerate(places)
            ]
            for key, code in run_forked(jobs, self.workers, float("inf")):
                print(f"observed\t{key}\t{code}", file=sys.stderr, flush=True)
            rows = [json.loads(line) for place in places if place.exists() for line in place.read_text().splitlines()]
        return {number: (seconds, frozenset(given)) for number, seconds, given in rows}


def _likeness(item: pytest.Item, word: str) -> int:
    """Return how little a test seems to be about a word."""
    refuses = 2 if _REFUSES.search(item.nodeid) else 0
    if word in item.nodeid:
        return refuses
    text = inspect.getsource(item.function) if isinstance(item, pytest.Function) else ""
    if re.search(rf"\b{word}\b", text):
        return 1 + refuses
    return 5 if word in item.path.read_text(encoding="utf-8") else 6


def jobs_by_key(jobs: Sequence[Job]) -> Mapping[int, Job]:
    """Return jobs by their keys."""
    return {job.key: job for job in jobs}


def without(name: str, items: Sequence[pytest.Item]) -> int:
    """Run tests without a field."""
    STATE.dropped = name
    return _plain(items)


def _plain(items: Sequence[pytest.Item]) -> int:
    signal.alarm(3 * MOST_WAITED)
    return GREEN if run_items(items) else RED


def _note(items: Sequence[pytest.Item], numbers: Sequence[int], into: Path) -> int:
    """Run tests and write down which fields each that passed was given."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    with into.open("w", encoding="utf-8") as written:
        for number in numbers:
            STATE.seen = set()
            signal.signal(signal.SIGPROF, stop)
            signal.setitimer(signal.ITIMER_PROF, MOST_NOTED)
            began = time.process_time()
            passed = run_items([items[number]])
            signal.setitimer(signal.ITIMER_PROF, 0)
            if passed and STATE.seen:
                written.write(json.dumps([number, time.process_time() - began, sorted(STATE.seen)]) + "\n")
                written.flush()
    return 0


@dataclass
class FieldsPlugin:
    """Takes the place of pytest's loop."""

    run: Callable[[Sequence[pytest.Item]], None]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run what is to be run."""
        session.config.option.maxfail = 1 << 30
        self.run(session.items)
        return True


def collect(run: Callable[[Sequence[pytest.Item]], None], places: Sequence[str]) -> None:
    """Collect tests and hand them to ``run``.

    Raises:
        RuntimeError: they can't be collected.
    """
    hook()
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *QUIET, *places]
    code = pytest.main(arguments, plugins=[FieldsPlugin(run)])
    if code not in (0, 5):
        message = f"the tests can't be collected: pytest ended with {code!r}"
        raise RuntimeError(message)
