"""Finds a test for each field that has no row: ``python -m fields.find REGISTER,… TESTS…`` prints rows as it goes.

All tests run once, and it is noted which fields each was given another value for than the default. Then each field is
dropped in those, the likeliest first, until one turns red. What it finds has to be looked at: a test that turns red
may still be about something else.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

from fields.dropping import STATE
from fields.trying import MOST_SECONDS, RED, collect, run_here
from fields.walking import fields, register
from mutants.forks import Job, run_forked
from mutants.observed import TooSlow, first_failure

MOST_NOTED: Final = 4.0
"""Of processor time, that a test may take to be of use."""
NOTING_SECONDS: Final = 900.0
TRIED: Final = 40
"""How many tests are tried for a field."""
WAITED: Final = 20
NONE: Final = 255
_REFUSES: Final = re.compile(
    r"refus|bad|malformed|unknown|never|schema|wrong|fit|misspelt|no_effect|warn|example|page", re.IGNORECASE
)
"""Names of tests of what is not accepted: those of an effect are tried before them."""

Seen = Mapping[int, tuple[float, frozenset[str]]]
"""By the number of a test: how long it takes, and which fields it was given."""


@dataclass
class Search:
    """Fields for which a test is searched."""

    fields: Sequence[str]
    workers: int

    def run(self, items: Sequence[pytest.Item]) -> None:
        """Print a row for each field for which one of the tests is of use, and the names of the others."""
        seen = self._noted(items)
        chosen = [self._candidates(name, items, seen) for name in self.fields]
        jobs = [
            Job(key, partial(_first, self.fields[key], tests), 4 * MOST_SECONDS) for key, tests in enumerate(chosen)
        ]
        for key, code in run_forked(jobs, self.workers, float("inf")):
            test = chosen[key][code].nodeid.partition("[")[0] if 0 <= code < len(chosen[key]) else ""
            print(f"\n{'row' if test else 'none'}\t{self.fields[key]}\t{test}", file=sys.stderr, flush=True)

    def _candidates(self, name: str, items: Sequence[pytest.Item], seen: Seen) -> list[pytest.Item]:
        word = name.rpartition(".")[2].strip("_*")
        able = [(items[number], seconds) for number, (seconds, given) in seen.items() if name in given]
        able.sort(key=lambda one: (one[1] > 1, unlikeness(one[0], word), one[1]))
        return [item for item, _ in able[:TRIED]]

    def _noted(self, items: Sequence[pytest.Item]) -> Seen:
        with tempfile.TemporaryDirectory() as scratch:
            shards = self.workers * 16
            places = [Path(scratch) / str(shard) for shard in range(shards)]
            jobs = [
                Job(shard, partial(_note, items, range(shard, len(items), shards), place), NOTING_SECONDS)
                for shard, place in enumerate(places)
            ]
            for _ in run_forked(jobs, self.workers, float("inf")):
                pass
            rows = [json.loads(line) for place in places if place.exists() for line in place.read_text().splitlines()]
        return {number: (seconds, frozenset(given)) for number, seconds, given in rows}


def unlikeness(item: pytest.Item, word: str) -> int:
    """Return how little a test seems to be about a word."""
    refuses = 2 if _REFUSES.search(item.nodeid) else 0
    if word in item.nodeid:
        return refuses
    text = inspect.getsource(item.function) if isinstance(item, pytest.Function) else ""
    if re.search(rf"\b{word}\b", text):
        return 1 + refuses
    return 5 if word in item.path.read_text(encoding="utf-8") else 6


def _first(name: str, tests: Sequence[pytest.Item]) -> int:
    """Return the number of the first test that turns red without a field."""
    STATE.dropped = name
    return next((number for number, test in enumerate(tests) if run_here([test], WAITED) == RED), NONE)


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
            passed = first_failure([items[number]]) is None
            signal.setitimer(signal.ITIMER_PROF, 0)
            if passed and STATE.seen:
                written.write(json.dumps([number, time.process_time() - began, sorted(STATE.seen)]) + "\n")
                written.flush()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="fields.find", description="Find a test for each field that has no row.")
    parser.add_argument("registers", help="names of registers, with commas between them")
    parser.add_argument("tests", nargs="+", help="files and directories of tests, or options of pytest")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    asked, more = parser.parse_known_args()
    wanted = [one for name in asked.registers.split(",") for one in fields(name) if one not in register(name)["fields"]]
    collect(Search(wanted, asked.workers).run, [*asked.tests, *more])
