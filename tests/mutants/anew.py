"""Runs mutants of what happens at import: each in a fork that has imported libraries, but nothing of ours."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from functools import partial
from importlib.machinery import SourceFileLoader
from typing import Final

import pytest

from mutants.decides import PACKAGE
from mutants.forks import Job, run_forked
from mutants.operators import Mutant
from mutants.plugin import KILLED_BY, LAST_CODE, QUIET, SURVIVED, Plan

SECONDS: Final = 40.0
MOST_FILES: Final = 4
"""Of how many test modules the tests are run: each has to be imported again."""


def run_anew(plan: Plan) -> None:
    """Run what of the plan can't be swapped in. Nothing of ours may have been imported."""
    assert not any(name == "sublet" or name.startswith("sublet.") for name in sys.modules)
    for number in plan.anew:
        plan.chosen[number] = _of_few_files(plan.chosen[number])
    jobs = (
        Job(number, partial(_try, plan.mutants[number], plan.chosen[number]), SECONDS) for number in sorted(plan.anew)
    )
    for number, code in run_forked(jobs, plan.workers, plan.deadline):
        plan.record(number, code)


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
        arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *QUIET, *some]
        if some and pytest.main(arguments, plugins=[noticed]) != pytest.ExitCode.OK:
            by = tests.index(noticed.test) if noticed.test in tests else tests.index(some[0])
            return min(KILLED_BY + by, LAST_CODE)
    return SURVIVED


class _First:
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
