"""A plugin of pytest that collects once, and then runs each mutant's tests in a fork of its own."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Final

import hypothesis
import pytest

from mutants.decides import PACKAGE, SETTLED, modules, own_tests
from mutants.forks import Job, run_forked
from mutants.importing import name_of
from mutants.kept import CACHE, Kept
from mutants.observed import Observed, Remembered, first_failure, load, observe
from mutants.operators import Mutant
from mutants.settling import settles_otherwise, settling_test
from mutants.swapping import Functions, ModuleLevelError, changed_code, loaded_functions, swap

SECONDS_OF_TESTS: Final = 3.0
"""Processor time, with calls being noted, of the tests that a mutant is given: its own first, then the quickest."""
LEAST_SECONDS: Final = 6.0
"""Processor time that a mutant may take at least before it counts as one that never ends."""
LEAST_OF_TEST: Final = 1.5
TIMES_AS_LONG: Final = 3
"""Processor time that one test of a mutant may take: so much, and so many times what it took with calls being noted."""
OBSERVING_SECONDS: Final = 600.0
"""Of processor time, for one part of the tests."""
MODULES_A_FORK: Final = 1
"""How many test modules are observed in one fork."""
EXAMPLES: Final = 25
"""How many examples a property is tried with: the same ones each time."""
KILLED, SURVIVED, ANEW = 1, 0, 3
KILLED_BY: Final = 10
"""From here on an exit code says which of a mutant's tests has noticed it."""
LAST_CODE: Final = 255
QUIET: Final = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "-o", "timeout=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
"""Nobody reads why a test fails, forks have bounds of their own, and libraries with plugins have been imported."""

Results = dict[int, bool]
"""Whether the mutant of this number survived."""


@dataclass
class Plan:
    """What is to be done, and what came of it."""

    mutants: Sequence[Mutant]
    workers: int
    deadline: float
    results: Results = field(default_factory=dict)
    anew: set[int] = field(default_factory=set)
    """Mutants that can't be swapped in."""
    chosen: dict[int, list[str]] = field(default_factory=dict)
    """Ids of the tests of each of those."""
    loaded: Sequence[str] = ()
    """The modules that the tests import."""
    untested: set[int] = field(default_factory=set)
    """Mutants that no test reaches."""
    kept: Kept | None = None
    """Where results are kept."""
    in_part: bool = False
    """Whether the tests are only some of those that a mutant should be given, so that surviving shows nothing."""
    further: bool = False
    """Whether the tests are those of other places, for who survived the tests of its own."""

    def record(self, number: int, code: int) -> None:
        """Note the end of a mutant's fork; a survivor is told at once, since a whole run takes hours."""
        mutant, survived = self.mutants[number], code == SURVIVED
        self.results[number] = survived
        tests = self.chosen.get(number, [])[code - KILLED_BY :][:1] if code >= KILLED_BY else []
        if self.kept and not (survived and self.in_part):
            self.kept.note(mutant, survived=survived, tests=tests, further=self.further)
        if survived:
            print(f"survives: {mutant.file} {mutant.name}", file=sys.stderr, flush=True)


class Briefly:
    """Lets tests fail without a word, and properties without a search for the smallest example."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Settle how properties are tried before there are any."""
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants", deadline=None, derandomize=True, max_examples=EXAMPLES, phases=phases
        )
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport | None:
        """Say that a test has failed, and not where: to draw that takes longer than most tests."""
        if call.excinfo is None or call.when == "collect" or item.get_closest_marker("xfail") is not None:
            return None
        if call.excinfo.errisinstance((pytest.skip.Exception, pytest.xfail.Exception)):
            return None
        return pytest.TestReport(item.nodeid, item.location, {}, "failed", None, call.when)


class MutantsPlugin(Briefly):
    """Takes the place of pytest's loop."""

    def __init__(self, plan: Plan) -> None:
        """Run this plan."""
        self._plan = plan
        self._items: Sequence[pytest.Item] = ()
        self._functions: Functions = {}
        self._given: dict[int, Sequence[int]] = {}
        self._settled: dict[str, bool] = {}
        self._killers: Counter[tuple[str | int, ...]] = Counter()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Observe all tests, then run all mutants."""
        plan, self._items = self._plan, session.items
        session.config.option.maxfail = 1 << 30
        plan.loaded = sorted(sys.modules)
        files = {str(PACKAGE / mutant.file) for mutant in plan.mutants}
        self._functions = loaded_functions(files)
        began = time.monotonic()
        observed = self._observe({str(PACKAGE / file) for file in modules()})
        count = len(observed) if observed is not None else "not all"
        print(f"{count} of {len(self._items)} tests observed in {time.monotonic() - began:.0f} s", file=sys.stderr)
        # What was observed in part would let survive what the other tests notice.
        jobs = self._jobs(observed) if observed is not None else iter(())
        for number, code in run_forked(jobs, plan.workers, plan.deadline):
            if code == ANEW:
                plan.anew.add(number)
            else:
                plan.record(number, code)
                self._note_killer(number, code)
        return True

    def _note_killer(self, number: int, code: int) -> None:
        """Remember which test has noticed, for the next mutants of this function and of this module."""
        if code >= KILLED_BY:
            mutant, test = self._plan.mutants[number], self._given[number][code - KILLED_BY]
            self._killers.update([(mutant.file, test), (mutant.file, mutant.function, test)])

    def _observe(self, files: Collection[str]) -> Mapping[int, Observed] | None:
        """Run every test once as things are, unless it is known; None where there was no time for all."""
        numbers: dict[Path, list[int]] = {}
        for number, item in enumerate(self._items):
            numbers.setdefault(item.path, []).append(number)
        remembered = Remembered(CACHE if self._plan.kept else None)
        observed: dict[int, Observed] = {}
        left: list[Path] = []
        for path, own in numbers.items():
            seen = remembered.of(path)
            if seen is None:
                left.append(path)
            else:
                ids = {self._items[number].nodeid: number for number in own}
                observed |= {ids[test]: one for test, one in seen.items() if test in ids}
        parts = [left[at : at + MODULES_A_FORK] for at in range(0, len(left), MODULES_A_FORK)]
        with tempfile.TemporaryDirectory() as scratch:
            jobs = [
                Job(
                    key,
                    partial(
                        observe,
                        self._items,
                        [n for path in part for n in numbers[path]],
                        files,
                        Path(scratch, str(key)),
                    ),
                    OBSERVING_SECONDS,
                )
                for key, part in enumerate(parts)
            ]
            ended = 0
            for key, code in run_forked(jobs, self._plan.workers, self._plan.deadline):
                ended += 1
                place = Path(scratch, str(key))
                new = load(place) if place.exists() else {}
                observed |= new
                for path in parts[key] if code == 0 else ():
                    remembered.keep(path, {self._items[n].nodeid: new[n] for n in numbers[path] if n in new})
        return observed if ended == len(jobs) else None

    def _jobs(self, observed: Mapping[int, Observed]) -> Iterator[Job]:
        for number, mutant in enumerate(self._plan.mutants):
            path = PACKAGE / mutant.file
            try:
                pairs = changed_code(path, path.read_text(encoding="utf-8"), mutant.source)
            except SyntaxError:
                self._plan.record(number, KILLED)
                continue
            except ModuleLevelError:
                pairs = []
            names = {(old.co_filename, old.co_qualname) for old, _ in pairs}
            tests = self._given[number] = self._tests(mutant, observed, names)
            self._plan.chosen[number] = [self._items[test].nodeid for test in tests]
            if not tests:
                self._plan.untested.add(number)
                self._plan.record(number, SURVIVED)
            elif not pairs and self._tells_settled(mutant.file):
                yield Job(number, partial(_look, mutant), LEAST_SECONDS)
            elif not pairs:
                self._plan.anew.add(number)
            else:
                took = [observed[test].seconds for test in tests]
                bounds = [LEAST_OF_TEST + TIMES_AS_LONG * seconds for seconds in took]
                seconds = LEAST_SECONDS + TIMES_AS_LONG * sum(took)
                yield Job(number, partial(self._try, pairs, tests, bounds), seconds)

    def _tests(
        self, mutant: Mutant, observed: Mapping[int, Observed], names: Collection[tuple[str, str]]
    ) -> Sequence[int]:
        """Return the tests that call what is changed, a module's own first, as many as there is time for."""
        file, own = str(PACKAGE / mutant.file), own_tests(mutant.file)
        if not names:
            # What happens at import is tested also by what only looks at its names.
            holding = self._holding(mutant.file)
            others = self._of_import(file, own, observed)
            return [*holding, *self._cheapest(observed, [number for number in others if number not in holding])]
        able = [number for number, seen in observed.items() if not seen.called.isdisjoint(names)]
        able.sort(key=lambda number: (self._stem(number) not in own, observed[number].seconds))
        chosen = self._cheapest(observed, able)
        return sorted(chosen, key=lambda test: self._noticed(mutant, test), reverse=True)

    def _noticed(self, mutant: Mutant, test: int) -> tuple[int, int]:
        """Return how often a test has noticed mutants of the same function, and of the same module."""
        return self._killers[mutant.file, mutant.function, test], self._killers[mutant.file, test]

    def _holding(self, file: str) -> list[int]:
        """Return the tests that hold what a module settles."""
        path = settling_test(file)
        return [number for number, item in enumerate(self._items) if path is not None and item.path == path]

    def _tells_settled(self, file: str) -> bool:
        """Tell whether a module that is run once more, without a change, settles what it should."""
        if file not in self._settled:
            text = (PACKAGE / file).read_text(encoding="utf-8")
            job = Job(0, partial(settles_otherwise, file, text), LEAST_SECONDS)
            known = bool(self._holding(file)) and name_of(file) in sys.modules
            self._settled[file] = known and [code for _, code in run_forked([job], 1, float("inf"))] == [0]
        return self._settled[file]

    def _of_import(self, file: str, own: Collection[str], observed: Mapping[int, Observed]) -> list[int]:
        calls = {number: sum(one == file for one, _ in seen.called) for number, seen in observed.items()}
        able = [number for number, count in calls.items() if count or self._stem(number) in {*own, SETTLED}]
        able.sort(
            key=lambda number: (
                self._stem(number) != SETTLED,
                self._stem(number) not in own,
                -calls[number],
                observed[number].seconds,
            )
        )
        return able

    def _stem(self, number: int) -> str:
        return self._items[number].path.stem

    def _cheapest(self, observed: Mapping[int, Observed], able: Sequence[int]) -> Sequence[int]:
        chosen, seconds = [], 0.0
        for number in able:
            if seconds + observed[number].seconds <= SECONDS_OF_TESTS:
                chosen.append(number)
                seconds += observed[number].seconds
        return chosen

    def _try(self, pairs: Collection[tuple[CodeType, CodeType]], tests: Sequence[int], bounds: Sequence[float]) -> int:
        try:
            swap(pairs, self._functions)
        except ModuleLevelError:
            return ANEW
        by = first_failure([self._items[number] for number in tests], bounds)
        return SURVIVED if by is None else min(KILLED_BY + by, LAST_CODE)


def _look(mutant: Mutant) -> int:
    return KILLED_BY if settles_otherwise(mutant.file, mutant.source) else ANEW


def collect_and_run(plan: Plan, folders: Sequence[str]) -> None:
    """Collect the tests of these folders and run the plan.

    Raises:
        RuntimeError: if the tests can't be collected.
    """
    os.environ.pop("PYTEST_ADDOPTS", None)
    code = pytest.main([*QUIET, *folders], plugins=[MutantsPlugin(plan)])
    if code not in (0, 5):
        message = f"the tests can't be collected: pytest ended with {code!r}"
        raise RuntimeError(message)
