"""A plugin of pytest that collects once, and then drops each field in a fork that runs the test of its row."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pytest

from fields.dropping import STATE, hook
from mutants.forks import Job, run_forked
from mutants.observed import first_failure
from mutants.plugin import QUIET

RED, GREEN = 0, 1
"""How the tests in a fork ended."""
MOST_SECONDS: Final = 20.0
"""Of processor time, that a test may take."""
MOST_WAITED: Final = 60
"""Seconds after which a test counts as one that hangs, which shows nothing."""

Run = Callable[[Sequence[pytest.Item]], None]


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
        broken = self._broken(found)
        for row in self.rows:
            if row.test not in found:
                self.ends[row] = f"there is no {row.test}"
            elif row.test in broken:
                self.ends[row] = f"{row.test} fails with the field as well"
        left = [row for row in self.rows if row not in self.ends]
        jobs = (Job(key, partial(_without, row.field, found[row.test]), MOST_SECONDS) for key, row in enumerate(left))
        for key, code in run_forked(jobs, self.workers, float("inf")):
            row = left[key]
            self.ends[row] = "" if code == RED else f"{row.test} does not notice that it is gone"

    def _broken(self, found: Mapping[str, Sequence[pytest.Item]]) -> set[str]:
        """Return the named tests that fail although nothing is dropped."""
        tests = sorted({row.test for row in self.rows} & found.keys())
        jobs = (Job(key, partial(run_here, found[test]), MOST_SECONDS) for key, test in enumerate(tests))
        return {tests[key] for key, code in run_forked(jobs, self.workers, float("inf")) if code != GREEN}


def run_here(items: Sequence[pytest.Item], seconds: int = MOST_WAITED) -> int:
    """Run tests in this process, which ends by a signal where they hang."""
    signal.alarm(seconds)
    code = GREEN if first_failure(items) is None else RED
    signal.alarm(0)
    return code


def _without(name: str, items: Sequence[pytest.Item]) -> int:
    STATE.dropped = name
    return run_here(items)


@dataclass
class FieldsPlugin:
    """Takes the place of pytest's loop."""

    run: Run

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run what is to be run."""
        session.config.option.maxfail = 1 << 30
        self.run(session.items)
        return True


def collect(run: Run, places: Sequence[str]) -> None:
    """Hook the models, collect tests, and hand them to ``run``.

    Raises:
        RuntimeError: they can't be collected.
    """
    hook()
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *QUIET, *places]
    code = pytest.main(arguments, plugins=[FieldsPlugin(run)])
    if code not in (0, 5):
        message = f"the tests can't be collected: pytest ended with {code!r}"
        raise RuntimeError(message)
