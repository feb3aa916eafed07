"""Every field that is accepted from outside has a test that observes it: the registers are complete, and told truly."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from fields.run import rows
from fields.walking import ROOTS, fields, register

ROOT: Final = Path(__file__).parents[2]
SAMPLE: Final = 10
"""How many rows are tried: others for each commit. ``make fields`` tries all."""
MOST_UNOBSERVED: Final = 30
"""How many fields may have no effect; it only gets smaller."""


@pytest.mark.parametrize("name", list(ROOTS))
def test_each_field_has_a_row_or_a_reason_to_have_none(name: str) -> None:
    told = register(name)
    assert sorted([*told["fields"], *told["unobserved"]]) == sorted(fields(name))
    assert all(reason.strip() for reason in told["unobserved"].values())


def test_hardly_a_field_is_without_a_test() -> None:
    assert sum(len(register(name)["unobserved"]) for name in ROOTS) <= MOST_UNOBSERVED


@pytest.mark.parametrize("name", list(ROOTS))
def test_each_row_says_an_effect_and_names_a_test_that_is_there(name: str) -> None:
    for field, row in register(name)["fields"].items():
        file, _, test = row["test"].partition("::")
        assert row["effect"].strip(), field
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"def {test.rpartition('::')[2]}\(", source), f"{field}: there is no {row['test']}"


def test_the_tests_of_some_fields_turn_red_without_them() -> None:
    done = tried("--sample", str(SAMPLE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{SAMPLE} of {SAMPLE} observed"


def test_a_row_whose_test_sees_nothing_is_told(tmp_path: Path) -> None:
    """Else every row would be true."""
    row = rows()[0]
    code = f"""
from fields.run import Row, try_rows
row = Row({row.field!r}, "tests/fields/test_registers.py::test_hardly_a_field_is_without_a_test")
print(try_rows([row], 1).ends[row])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=surroundings(), capture_output=True, text=True, check=False
    )
    assert "does not notice that it is gone" in done.stdout, done.stderr


def tried(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``make fields`` as it is."""
    argv = [sys.executable, "-m", "fields.run", *arguments]
    return subprocess.run(argv, cwd=ROOT, env=surroundings(), capture_output=True, text=True, check=False)


def surroundings() -> dict[str, str]:
    """Return the environment in which the modules of tests are found."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
