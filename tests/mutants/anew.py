"""Runs mutants of what happens at import: each in a fork that has imported nothing that imports the module."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.machinery import SourceFileLoader
from multiprocessing import get_context
from typing import Final, Protocol

import pytest

from mutants.decides import PACKAGE, ROOT, TESTS
from mutants.forks import Job, run_forked
from mutants.importing import importers, name_of
from mutants.operators import Mutant
from mutants.plugin import KILLED_BY, LAST_CODE, QUIET, SURVIVED, Briefly, Plan

SECONDS: Final = 20.0
MOST_FILES: Final = 4
"""Of how many test modules the tests are run: each has to be imported again."""
OURS: Final = frozenset(
    {"sublet", "tests", "conftest", "__main__"}
    | {path.stem for place in (TESTS, ROOT / "examples" / "extensions") for path in place.iterdir()}
)
"""What imports our modules, or is one: what tests share lies beside them, such as ``workspace.confined.leases``."""


class _Sender(Protocol):
    def send(self, obj: object, /) -> None: ...


def run_anew(plan: Plan) -> None:
    """Run what of the plan can't be swapped in. Nothing of ours may have been imported."""
    assert not any(name == "sublet" or name.startswith("sublet.") for name in sys.modules)
    by_file: dict[str, list[int]] = {}
    for number in sorted(plan.anew):
        plan.chosen[number] = _of_few_files(plan.chosen[number])
        by_file.setdefault(plan.mutants[number].file, []).append(number)
    _load(name for name in plan.loaded if by_file and name.partition(".")[0] not in OURS and "test" not in name)
    for file, numbers in by_file.items():
        for number, code in _apart(plan, file, numbers):
            plan.record(number, code)


def _apart(plan: Plan, file: str, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Run the mutants of one module in forks of a process that has imported what does not import the module."""
    receiver, sender = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_run, args=(plan, file, numbers, sender))
    process.start()
    sender.close()
    while True:
        try:
            yield receiver.recv()
        except EOFError:
            break
    process.join()


def _run(plan: Plan, file: str, numbers: Sequence[int], sender: _Sender) -> None:
    apart = importers(name_of(file))
    _load(name for name in plan.loaded if name.partition(".")[0] == "sublet" and name not in apart)
    assert not apart & sys.modules.keys()
    jobs = (Job(number, partial(_try, plan.mutants[number], plan.chosen[number]), SECONDS) for number in numbers)
    for done in run_forked(jobs, plan.workers, plan.deadline):
        sender.send(done)


def _load(names: Iterator[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            # What can't be imported by its name alone is left to the forks.
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _try(mutant: Mutant, tests: Sequence[str]) -> int:
    path, plain = str(PACKAGE / mutant.file), SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> types.CodeType | None:
        if self.path != path:
            return plain(self, fullname)
        return compile(mutant.source, path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]
    first = [test for test in tests if test.partition("::")[0] == tests[0].partition("::")[0]]
    for some in (first, tests[len(first) :]):
        noticed = _First()
        if some and pytest.main(["-x", *QUIET, *some], plugins=[noticed]) != pytest.ExitCode.OK:
            by = tests.index(noticed.test) if noticed.test in tests else tests.index(some[0])
            return min(KILLED_BY + by, LAST_CODE)
    return SURVIVED


class _First(Briefly):
    """Remembers which test has noticed; of what can't even be loaded, none."""

    def __init__(self) -> None:
        self.test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the first that fails."""
        if report.failed and not self.test:
            self.test = report.nodeid


def _of_few_files(tests: Sequence[str]) -> list[str]:
    """Leave the tests of a few files, file by file."""
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))[:MOST_FILES]
    return [test for file in files for test in tests if test.partition("::")[0] == file]
