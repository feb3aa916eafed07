"""What mutants have shown is kept, and holds as long as what it was shown by is the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mutants import kept, run
from mutants.decides import ROOT, TESTS
from mutants.kept import Kept, Shown
from mutants.operators import Mutant
from mutants.plugin import KILLED, KILLED_BY, SURVIVED, Plan

FILE = "policy/some.py"
KILLER = "tests/policy/test_some.py"
MUTANTS = [Mutant(FILE, f"LIMIT = {number}\n", "", "LIMIT = 3", f"LIMIT = {number}") for number in (4, 5)]
SMALL = "workspace/confined/later.py"
"""A module with few mutants."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src/policy").mkdir(parents=True)
    (tmp_path / "src" / FILE).write_text("LIMIT = 3\n")
    (tmp_path / "tests/policy").mkdir(parents=True)
    (tmp_path / KILLER).write_text("def test_limit(): ...\n")
    return tmp_path


def kept_in(tree: Path, *folders: str) -> Kept:
    """Keep as a new process would: nothing is remembered of files."""
    kept._of_file.cache_clear()
    kept._of_module.cache_clear()
    return Kept(tree / "kept", folders or ("tests/policy",), tree, tree / "src")


@pytest.fixture
def shown(tree: Path) -> Path:
    """Keep that the first mutant was killed and the second survived."""
    first = kept_in(tree)
    first.note(MUTANTS[0], survived=False, tests=[f"{KILLER}::test_limit"])
    first.note(MUTANTS[1], survived=True, tests=[f"{KILLER}::test_limit"])
    return tree


def test_what_was_shown_is_known_to_the_next_run(shown: Path) -> None:
    assert kept_in(shown).known(MUTANTS) == {0: Shown(False), 1: Shown(True, (f"{KILLER}::test_limit",))}


def test_another_text_of_the_module_is_tried(shown: Path) -> None:
    (shown / "src" / FILE).write_text("LIMIT = 3  # the most\n")
    assert kept_in(shown).known(MUTANTS) == {}
    (shown / "src" / FILE).write_text("LIMIT = 3\n")
    assert len(kept_in(shown).known(MUTANTS)) == 2


def test_who_was_killed_by_a_test_that_has_changed_is_tried(shown: Path) -> None:
    (shown / KILLER).write_text("")
    assert kept_in(shown).known(MUTANTS) == {}


def test_a_new_test_is_tried_on_who_survived_alone(shown: Path) -> None:
    (shown / "tests/policy/test_more.py").write_text("def test_more(): ...\n")
    assert list(kept_in(shown).known(MUTANTS)) == [0]


def test_who_survived_all_tests_is_known_as_such(shown: Path) -> None:
    kept_in(shown).note(MUTANTS[1], survived=True, tests=["tests/web/test_page.py::test_it"], further=True)
    plan = Plan(MUTANTS, 1, 0.0, kept=kept_in(shown))
    plan.recall()
    assert plan.results == {0: False, 1: True}
    assert plan.doubtful() == []


def test_only_the_test_that_has_noticed_is_remembered(tree: Path) -> None:
    (tree / "tests/policy/test_other.py").write_text("")
    tests = ["tests/policy/test_other.py::test_other", f"{KILLER}::test_limit"]
    Plan(MUTANTS, 1, 0.0, chosen={0: tests}, kept=kept_in(tree)).record(0, KILLED_BY + 1)
    (tree / "tests/policy/test_other.py").write_text("changed")
    assert list(kept_in(tree).known(MUTANTS)) == [0]
    (tree / KILLER).write_text("changed")
    assert kept_in(tree).known(MUTANTS) == {}


def test_who_survived_some_tests_alone_has_shown_nothing(tree: Path) -> None:
    plan = Plan(MUTANTS, 1, 0.0, kept=kept_in(tree), in_part=True)
    plan.record(0, SURVIVED)
    plan.record(1, KILLED)
    assert kept_in(tree).known(MUTANTS) == {1: Shown(False)}


def test_who_survived_fewer_tests_is_tried_with_more(shown: Path) -> None:
    (shown / "tests/protocol").mkdir()
    assert list(kept_in(shown, "tests/policy", "tests/protocol").known(MUTANTS)) == [0]


@pytest.mark.parametrize("tool", kept.TOOLS)
def test_other_tools_try_everything(shown: Path, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = shown / "tools"
    shutil.copytree(Path(kept.__file__).parent, here, ignore=shutil.ignore_patterns("__pycache__"))
    (here / tool).write_text((here / tool).read_text() + "\n")
    monkeypatch.setattr(kept, "__file__", str(here / "kept.py"))
    assert kept_in(shown).known(MUTANTS) == {}


def test_the_latest_line_stands_and_a_line_that_was_cut_off_is_none(shown: Path) -> None:
    kept_in(shown).note(MUTANTS[1], survived=False, tests=[])
    [path] = (shown / "kept" / "policy.some.py").iterdir()
    path.write_text(path.read_text() + '{"mutant": "0')
    assert kept_in(shown).known(MUTANTS) == {0: Shown(False), 1: Shown(False)}


def test_of_many_texts_the_newest_are_kept(tree: Path) -> None:
    for number in range(kept.MOST_TEXTS + 3):
        (tree / "src" / FILE).write_text(f"LIMIT = 3  # {number}\n")
        kept_in(tree).note(MUTANTS[0], survived=False, tests=[])
    assert len(list((tree / "kept" / "policy.some.py").iterdir())) == kept.MOST_TEXTS
    assert list(kept_in(tree).known(MUTANTS)) == [0]


def test_each_module_has_a_line(shown: Path) -> None:
    (shown / "src/policy/other.py").write_text("LEAST = 1\n")
    plan = Plan([*MUTANTS, Mutant("policy/other.py", "", "", "1", "2")], 1, 0.0, kept=kept_in(shown))
    plan.recall()
    assert plan.known == 2
    assert [mutant.file for mutant in plan.left()] == ["policy/other.py"]
    assert run.of_modules(plan) == [
        "policy/some.py: 1 of 2 killed, 1 survived",
        "policy/other.py: 0 of 1 killed, 1 not run",
    ]


def test_a_plan_without_a_place_keeps_and_knows_nothing(tree: Path) -> None:
    plan = Plan(MUTANTS, 1, 0.0)
    plan.recall()
    plan.record(0, 1)
    assert plan.results == {0: False}
    assert not (tree / "kept").exists()


@pytest.mark.timeout(600)
def test_a_run_goes_on_where_the_one_before_was_stopped(tmp_path: Path) -> None:
    def told(*arguments: str) -> list[str]:
        command = [sys.executable, "-m", "mutants.run", "--all", "--workers", "1", "--kept", str(tmp_path / "kept")]
        done = subprocess.run(
            [*command, *arguments, SMALL],
            cwd=ROOT,
            env={"PYTHONPATH": str(TESTS), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.splitlines()

    stopped, whole, again = told("--seconds", "0.001"), told(), told()
    assert "not run" in stopped[1]
    assert " known from before" not in whole[0]
    count = whole[0].split()[0]
    assert again[0] == f"{count} mutants of 1 modules; {count} are tried, {count} of which are known from before"
    assert (again[1], again[-1]) == (whole[1], whole[-1])
    assert again[-1].endswith(f"of {count} killed or explained")
