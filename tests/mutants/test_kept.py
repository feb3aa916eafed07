"""What mutants have shown is kept in small files, and holds as long as the module is as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mutants import kept, run, told
from mutants.decides import ROOT, TESTS
from mutants.kept import BY_ITSELF, PLACE, Kept, Record, Shown
from mutants.operators import Mutant
from mutants.plugin import KILLED, KILLED_BY, SURVIVED, Plan

FILE = "policy/some.py"
KILLER = "tests/policy/test_some.py"
MUTANTS = [
    Mutant(FILE, f"LIMIT = {number}\n", "", "LIMIT = 3", f"LIMIT = {number}", number=number - 3) for number in (4, 5)
]
SURVIVOR = "module: LIMIT = 3 -> LIMIT = 5"
SMALL = "workspace/confined/later.py"
"""A module with few mutants."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src/policy").mkdir(parents=True)
    (tmp_path / "src" / FILE).write_text("LIMIT = 3\n")
    (tmp_path / "tests/policy").mkdir(parents=True)
    (tmp_path / KILLER).write_text("def test_limit(): ...\n")
    return tmp_path


def kept_in(tree: Path) -> Kept:
    return Kept(tree / "kept", tree, tree / "src")


def written(tree: Path) -> Path:
    return tree / "kept/policy/some.json"


@pytest.fixture
def shown(tree: Path) -> Path:
    """Keep that the first mutant was killed and the second survived."""
    first = kept_in(tree)
    first.counted(FILE, 2)
    first.note(MUTANTS[0], survived=False, tests=[f"{KILLER}::test_limit"])
    first.note(MUTANTS[1], survived=True, tests=[])
    first.write()
    return tree


def survivors(tree: Path) -> list[int]:
    return [number for number, one in kept_in(tree).known(FILE).items() if one.survived]


def test_what_was_shown_is_known_to_the_next_run(shown: Path) -> None:
    known = kept_in(shown).known(FILE)
    assert (known[1].by, known[2]) == (KILLER, Shown(name=SURVIVOR))
    assert not known[1].survived
    assert known[2].survived


def test_a_file_says_in_few_lines_what_was_shown(shown: Path) -> None:
    rows = json.loads(written(shown).read_text())
    digest = rows["killed"].popitem()[0].partition(" ")[2]
    assert len(digest) == kept.SHORT
    assert (rows["mutants"], rows["tried"], rows["survived"], rows["further"]) == (2, 2, {"2": SURVIVOR}, "")


def test_the_same_results_are_the_same_text_in_whatever_order_they_came(shown: Path) -> None:
    text = written(shown).read_text()
    written(shown).unlink()
    again = kept_in(shown)
    again.counted(FILE, 2)
    again.note(MUTANTS[1], survived=True, tests=[])
    again.note(MUTANTS[0], survived=False, tests=[f"{KILLER}::test_limit"])
    again.write()
    assert written(shown).read_text() == text


def test_numbers_are_written_as_ranges_and_read_again(tmp_path: Path) -> None:
    killed = [0, 1, 2, 5, 7, 8]
    record = Record("t", 9, {number: Shown(KILLER, "d") for number in killed} | {3: Shown(name="n", further=True)})
    assert f'"{KILLER} d": "0-2 5 7-8"' in record.written()
    (tmp_path / "one.json").write_text(record.written())
    assert Record.read(tmp_path / "one.json") == record


def test_another_text_of_the_module_is_tried(shown: Path) -> None:
    assert not kept_in(shown).outdated(FILE)
    (shown / "src" / FILE).write_text("LIMIT = 3  # the most\n")
    assert kept_in(shown).known(FILE) == {}
    assert kept_in(shown).outdated(FILE)
    (shown / "src" / FILE).write_text("LIMIT = 3\n")
    assert len(kept_in(shown).known(FILE)) == 2


def test_what_was_judged_in_another_way_is_tried(shown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "METHOD", kept.METHOD + 1)
    assert kept_in(shown).known(FILE) == {}
    assert kept_in(shown).outdated(FILE)


def test_another_release_of_what_makes_mutants_numbers_them_anew(shown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "version", lambda name: "99")
    assert kept_in(shown).known(FILE) == {}


def test_the_results_of_another_text_are_replaced(shown: Path) -> None:
    (shown / "src" / FILE).write_text("LIMIT = 3  # the most\n")
    later = kept_in(shown)
    later.note(MUTANTS[1], survived=False, tests=[])
    later.write()
    assert kept_in(shown).known(FILE) == {2: Shown(BY_ITSELF)}
    assert not kept_in(shown).outdated(FILE)


def test_who_was_killed_by_a_test_that_is_gone_is_tried(shown: Path) -> None:
    (shown / KILLER).unlink()
    assert list(kept_in(shown).known(FILE)) == [2]


def test_a_test_that_has_changed_since_is_told(shown: Path) -> None:
    assert told.amounts(kept_in(shown), FILE, [1, 2], ()).changed == 0
    (shown / KILLER).write_text("")
    amounts = told.amounts(kept_in(shown), FILE, [1, 2], ())
    assert (amounts.killed, amounts.changed) == (1, 1)


def test_who_survived_all_tests_is_known_as_such(shown: Path) -> None:
    again = kept_in(shown)
    again.note(MUTANTS[1], survived=True, tests=[], further=True)
    again.write()
    known = {FILE: kept_in(shown).known(FILE)}
    assert known[FILE][2].further
    assert run._doubted(FILE, known[FILE], further=False) == []
    assert run._doubted(FILE, known[FILE]) == [2]


def test_only_the_test_that_has_noticed_is_remembered(tree: Path) -> None:
    (tree / "tests/policy/test_other.py").write_text("")
    tests = ["tests/policy/test_other.py::test_other", f"{KILLER}::test_limit"]
    plan = Plan(MUTANTS, 1, 0.0, chosen={0: tests, 1: tests}, kept=kept_in(tree))
    plan.record(0, KILLED_BY + 1)
    plan.record(1, KILLED)
    assert plan.kept is not None
    assert [one.by for one in plan.kept.known(FILE).values()] == [KILLER, BY_ITSELF]


def test_who_survived_some_tests_alone_has_shown_nothing(tree: Path) -> None:
    plan = Plan(MUTANTS, 1, 0.0, kept=kept_in(tree), in_part=True)
    plan.record(0, SURVIVED)
    plan.record(1, KILLED)
    assert plan.kept is not None
    assert plan.kept.known(FILE) == {2: Shown(BY_ITSELF)}


def test_who_survives_is_written_down_while_the_run_goes_on(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WRITE_SECONDS", -1.0)
    kept_in(tree).note(MUTANTS[1], survived=True, tests=[])
    assert survivors(tree) == [2]


def test_the_table_has_a_line_for_each_module_and_for_all(shown: Path) -> None:
    (shown / "src/policy/other.py").write_text("LEAST = 1\n")
    here = kept_in(shown)
    there = {FILE: [1, 2], "policy/other.py": [0, 3, 4]}
    amounts = {file: told.amounts(here, file, numbers, ()) for file, numbers in there.items()}
    rows = [line.split() for line in told.table(here, amounts)]
    assert rows[1:] == [
        [FILE, "2", "1", "-", "1", "-", "-"],
        ["policy/other.py", "3", "-", "-", "-", "3", "-"],
        ["policy", "5", "1", "-", "1", "3", "-"],
        ["all", "5", "1", "-", "1", "3", "-"],
    ]
    assert amounts[FILE].names == [SURVIVOR]
    assert told.amounts(here, FILE, [1, 2], {(FILE, SURVIVOR)}).explained == 1


def test_an_outdated_result_and_a_file_of_no_module_are_told(shown: Path) -> None:
    (shown / "src" / FILE).write_text("LIMIT = 9\n")
    here = kept_in(shown)
    assert told.table(here, {FILE: told.amounts(here, FILE, [1, 2], ())})[1].startswith(f"{FILE} (outdated)")
    assert here.strangers([FILE]) == []
    assert here.strangers(["policy/other.py"]) == ["policy/some.json"]


def test_a_plan_without_a_place_keeps_nothing(tree: Path) -> None:
    plan = Plan(MUTANTS, 1, 0.0)
    plan.record(0, 1)
    assert plan.results == {0: False}
    assert not (tree / "kept").exists()


def test_what_is_kept_in_the_repository_can_be_read_and_is_as_it_would_be_written() -> None:
    paths = sorted(PLACE.rglob("*.json"))
    for path in paths:
        record = Record.read(path)
        assert record is not None
        assert record.written() == path.read_text(encoding="utf-8"), path


@pytest.mark.timeout(600)
def test_a_run_goes_on_where_the_one_before_was_stopped(tmp_path: Path) -> None:
    def output(*arguments: str, which: str = "--all") -> list[str]:
        command = [sys.executable, "-m", "mutants.run", which, "--workers", "1", "--kept", str(tmp_path / "kept")]
        done = subprocess.run(
            [*command, *arguments, SMALL],
            cwd=ROOT,
            env={"PYTHONPATH": str(TESTS), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert which != "--told" or done.returncode == 0
        return done.stdout.splitlines()

    stopped, nothing = output("--seconds", "0.001"), output(which="--told")
    whole, again, known = output(), output(), output(which="--told")
    count = whole[0].split()[0]
    assert stopped[-1] == nothing[-1] == f"0 of {count} killed or explained"
    assert whole[0] == f"{count} mutants of 1 modules; {count} are tried"
    assert again[0] == f"{count} mutants of 1 modules; 0 are tried"
    assert whole[-1] == again[-1] == known[-1] == f"{count} of {count} killed or explained"
