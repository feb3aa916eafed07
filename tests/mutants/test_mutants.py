"""What ``make mutants`` changes, how it puts the change in place, and what it says in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from mutants import forks, run
from mutants.decides import AREAS, PACKAGE, ROOT, TESTS, folders_of_tests, modules, own_tests
from mutants.explained import Explained, load
from mutants.forks import TIMED_OUT, Job, run_forked
from mutants.observed import Observed
from mutants.operators import Mutant, MutatedModule
from mutants.plugin import KILLED_BY, Briefly, MutantsPlugin, Plan
from mutants.swapping import Functions, ModuleLevelError, changed_code, swap

PLACE = "supervisor/router/syntax.py"
"""Small, and tested by tests that start no program."""
SOURCE = '''
import os
import re
from typing import Protocol, cast

import structlog

LIMIT = 3


def below(number, *, most=LIMIT):
    """Tell whether a number is below the most."""
    inner = lambda one: one < most
    return inner(number)


class Counter:
    step = 1

    def up(self, by=2):
        return [one + by for one in (1, 2)]


def refuse():
    raise ValueError("words for people")


def telling(name, there):
    log.warning("left aside", name=name, limit=3)
    if name not in there:
        hint = f"It has {', '.join(there[:3]) or 'none'}."
        raise Refused(Code.MISSING, f"no {name}"[:60], hint=hint, retry=5)
    return cast("Some", there.get("some", None)).encode("utf-8")


class Deciding(Protocol):
    def decide(self, most=7): ...


Some = dict[str, int]
NAMES = "move move.file mv"
SIZE = re.compile(r"[0-9]+ kb")
_log = structlog.get_logger("some")


def looked_at(path):
    return os.stat(path, follow_symlinks=False)


def read(raw):
    return int.from_bytes(raw, "big")
'''


def module_of(tmp_path: Path) -> MutatedModule:
    (tmp_path / "some.py").write_text(SOURCE)
    return MutatedModule(tmp_path, "some.py")


def loaded(path: Path) -> ModuleType:
    module = ModuleType("some")
    exec(compile(SOURCE, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def functions_of(*functions: Any) -> Functions:
    found: Functions = {}
    for one in functions:
        assert isinstance(one, FunctionType)
        code = one.__code__
        found[code.co_filename, code.co_qualname, code.co_firstlineno] = [one]
    return found


def test_a_mutant_has_a_name_that_says_what_is_changed_and_where(tmp_path: Path) -> None:
    names = [mutant.name for mutant in module_of(tmp_path)]
    assert "below: inner = lambda one: one < most -> inner = lambda one: one <= most" in names
    assert "module: LIMIT = 3 -> LIMIT = 4" in names
    assert "Counter.up: return [one + by for one in (1, 2)] -> return [one - by for one in (1, 2)]" in names
    assert [mutant.name for mutant in module_of(tmp_path)] == names
    assert all(mutant.source != SOURCE for mutant in module_of(tmp_path))


def changes_of(tmp_path: Path, function: str) -> list[str]:
    return [mutant.after for mutant in module_of(tmp_path) if mutant.function == function]


def test_words_for_people_are_no_mutants(tmp_path: Path) -> None:
    assert changes_of(tmp_path, "refuse") == []
    assert not [mutant for mutant in module_of(tmp_path) if "log.warning" in mutant.before]


def test_codes_keys_and_what_else_an_error_is_given_are_mutants(tmp_path: Path) -> None:
    changed = changes_of(tmp_path, "telling")
    assert "if name in there:" in changed
    assert [change for change in changed if change.startswith("raise")] == [
        'raise Refused(None, f"no {name}"[:60], hint=hint, retry=5)',
        'raise Refused(Code.MISSING, f"no {name}"[:60], hint=hint, retry=None)',
        'raise Refused(f"no {name}"[:60], hint=hint, retry=5)',
        'raise Refused(Code.MISSING, f"no {name}"[:60], hint=hint, )',
        'raise Refused(Code.MISSING, f"no {name}"[:60], hint=hint, retry=6)',
    ]
    for part in (".encode(None)", "there.get(None)", 'there.get("SOME", None)', '"XXutf-8XX"'):
        assert [change for change in changed if part in change]
    assert not [change for change in changed if "encode()" in change or 'get("some")' in change or "UTF-8" in change]


def test_what_only_the_type_checker_reads_is_no_mutant(tmp_path: Path) -> None:
    outside = changes_of(tmp_path, "")
    assert not [change for change in outside if change.startswith("Some")]
    assert changes_of(tmp_path, "Deciding.decide") == []


def test_what_a_log_is_called_and_another_word_for_no_is_no_mutant(tmp_path: Path) -> None:
    assert not [change for change in changes_of(tmp_path, "") if "get_logger" in change or "_log" in change]
    assert changes_of(tmp_path, "looked_at") == [
        "return os.stat(None, follow_symlinks=False)",
        "return os.stat(follow_symlinks=False)",
        "return os.stat(path, )",
        "return os.stat(path, follow_symlinks=True)",
    ]
    assert changes_of(tmp_path, "read") == [
        'return int.from_bytes(None, "big")',
        "return int.from_bytes(raw, None)",
        'return int.from_bytes("big")',
        'return int.from_bytes(raw, "XXbigXX")',
        'return int.from_bytes(raw, "BIG")',
    ]


def test_lists_of_names_and_patterns_are_no_words(tmp_path: Path) -> None:
    outside = changes_of(tmp_path, "")
    assert 'NAMES = "MOVE MOVE.FILE MV"' in outside
    assert 'SIZE = re.compile(r"[0-9]+ KB")' in outside


def test_a_loaded_function_runs_the_changed_code_and_stays_itself(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    some = loaded(path)
    kept = some.below
    swap(changed_code(path, SOURCE, SOURCE.replace("one < most", "one <= most")), functions_of(some.below))
    assert kept is some.below
    assert kept(3)
    assert not kept(4)
    swap(changed_code(path, SOURCE, SOURCE.replace("one + by", "one - by")), functions_of(some.Counter.up))
    assert some.Counter().up() == [-1, 0]


@pytest.mark.parametrize("change", [("LIMIT = 3", "LIMIT = 4"), ("by=2", "by=3"), ("step = 1", "step = None")])
def test_what_runs_at_import_is_not_swapped(tmp_path: Path, change: tuple[str, str]) -> None:
    with pytest.raises(ModuleLevelError):
        changed_code(tmp_path / "some.py", SOURCE, SOURCE.replace(*change))


def test_a_function_that_is_not_loaded_is_not_swapped(tmp_path: Path) -> None:
    pairs = changed_code(tmp_path / "some.py", SOURCE, SOURCE.replace("one < most", "one > most"))
    with pytest.raises(ModuleLevelError):
        swap(pairs, {})


def test_a_fork_that_never_ends_is_ended_and_the_others_are_told() -> None:
    def forever() -> int:
        while True:
            pass

    jobs = [Job(1, lambda: 0, 10), Job(2, lambda: 7, 10), Job(3, forever, 0.1), Job(4, lambda: 1 // 0, 10)]
    assert dict(run_forked(jobs, 2, float("inf"))) == {1: 0, 2: 7, 3: TIMED_OUT, 4: 1}
    assert list(run_forked(jobs, 2, 0.0)) == []


def test_a_fork_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "ASK_SECONDS", 0.05)

    def wait() -> int:
        signal.pause()
        return 0

    assert dict(run_forked([Job(1, wait, 0.05)], 1, float("inf"))) == {1: TIMED_OUT}


def test_a_fork_that_waits_for_a_child_that_works_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "ASK_SECONDS", 0.02)

    def wait() -> int:
        child = os.fork()
        if not child:
            while time.process_time() < 0.3:
                pass
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert dict(run_forked([Job(1, wait, 10)], 1, float("inf"))) == {1: 7}


def test_a_failure_is_told_without_a_word(request: pytest.FixtureRequest) -> None:
    def report_of(function: Callable[[], object]) -> pytest.TestReport | None:
        call: pytest.CallInfo[Any] = pytest.CallInfo.from_call(function, "call")
        return Briefly().pytest_runtest_makereport(request.node, call)

    failed = report_of(lambda: 1 // 0)
    assert failed is not None
    assert (failed.failed, failed.longrepr) == (True, None)
    assert report_of(lambda: 1) is None
    assert report_of(pytest.skip) is None


def test_the_tests_that_noticed_most_of_a_function_come_first_then_those_of_its_module() -> None:
    plugin = MutantsPlugin(Plan(mutants(3), 1, 0.0))
    plugin._items = [SimpleNamespace(path=Path("test_globs.py")) for _ in range(4)]  # type: ignore[misc]
    file = str(PACKAGE / "policy/globs.py")
    observed = {number: Observed(0.1 * (number + 1), frozenset({(file, "f")})) for number in range(4)}
    mutant = plugin._plan.mutants[0]
    assert list(plugin._tests(mutant, observed, {(file, "f")})) == [0, 1, 2, 3]
    plugin._given = {0: [3, 2], 1: [2, 1]}
    plugin._note_killer(0, KILLED_BY)
    plugin._killers[mutant.file, 1] += 5
    assert list(plugin._tests(mutant, observed, {(file, "f")})) == [3, 1, 0, 2]


def test_each_module_that_decides_is_there_and_has_tests() -> None:
    files = list(modules())
    assert len(files) == len(set(files)) > 150
    assert all((PACKAGE / area).exists() for area in AREAS)
    assert all((ROOT / folder).exists() for folder in folders_of_tests(files))
    assert "test_globs" in own_tests("policy/globs.py")
    assert "test_capabilities" in own_tests("policy/capabilities/__init__.py")
    assert own_tests("messaging/reading/authorise.py") == {"test_authorise", "test_reading_authorise"}


@pytest.mark.parametrize("row", load(), ids=lambda row: row.mutation[:60])
def test_what_is_explained_is_a_mutant_with_a_reason(row: Explained) -> None:
    assert len(row.reason.split()) >= 5
    assert row.mutation in names_of_mutants(row.file, row.function)


@cache
def mutated(file: str) -> MutatedModule:
    """Return a module, parsed once for all of its rows."""
    return MutatedModule(PACKAGE, file)


@cache
def names_of_mutants(file: str, function: str) -> frozenset[str]:
    return frozenset(mutant.name for mutant in mutated(file).of_function(function))


def test_nothing_is_explained_twice() -> None:
    rows = [(row.file, row.mutation) for row in load()]
    assert len(rows) == len(set(rows))


def mutants(number: int) -> list[Mutant]:
    return [Mutant("policy/globs.py", "", "f", f"{one}", f"{one + 1}") for one in range(number)]


def test_a_survivor_is_told_and_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(mutants(3), 1, 0.0, results={0: False, 1: True, 2: False}, chosen={1: ["a", "b"]})
    assert run.tell(plan) == 1
    assert "policy/globs.py, f: 2 tests pass\n  - 1\n  + 2" in capsys.readouterr().out
    assert run.last_line(plan) == "2 of 3 killed or explained"


def test_what_was_not_run_in_time_fails_the_run() -> None:
    plan = Plan(mutants(3), 1, 0.0, results={0: False, 1: False})
    assert run.tell(plan) == 1
    assert run.last_line(plan) == "2 of 3 killed or explained"


@pytest.mark.parametrize(("number", "code"), [(19, 1), (20, 0)])
def test_one_in_twenty_may_be_explained(monkeypatch: pytest.MonkeyPatch, number: int, code: int) -> None:
    plan = Plan(mutants(number), 1, 0.0, results=dict.fromkeys(range(number), False) | {0: True})
    monkeypatch.setattr(run, "load", lambda: [Explained("policy/globs.py", "f: 0 -> 1", "no test can tell")])
    assert run.tell(plan) == code
    assert run.last_line(plan) == f"{number} of {number} killed or explained"


@pytest.mark.timeout(600)
def test_mutants_of_a_real_module_are_killed_by_its_own_tests() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "mutants.run", "--sample", "4", "--workers", "1", "--seed", "test", PLACE],
        cwd=ROOT,
        env={"PYTHONPATH": str(TESTS), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.splitlines()[-1] == "4 of 4 killed or explained"
