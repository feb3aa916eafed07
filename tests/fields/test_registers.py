"""Every field that is accepted from outside has a test that observes it: the registers are complete, and told truly."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from fields.dropping import VARIABLE
from fields.walking import ROOTS, fields, register

ROOT: Final = Path(__file__).parents[2]
ALL: Final = "SUBLET_ALL_FIELDS"
"""With it in the environment every row is tried, as ``make fields`` does; without it a few are."""
SAMPLE: Final = 4
SEED: Final = 14
NOT_YET: Final = {"module", "gateway"}
"""Documents that have no register so far; it only gets smaller."""
MOST_UNOBSERVED: Final = {"agent": 88, "config": 45, "delegation": 30, "policy": 33}
"""How many fields of each document no test observes so far; it only gets smaller."""
ROWS: Final = [
    (field, row["test"]) for name in sorted(ROOTS.keys() - NOT_YET) for field, row in register(name)["fields"].items()
]
TRIED: Final = ROWS if os.environ.get(ALL) else random.Random(SEED).sample(ROWS, SAMPLE)


@pytest.mark.parametrize("name", sorted(ROOTS.keys() - NOT_YET))
def test_each_field_has_a_row_or_is_known_to_be_observed_by_none(name: str) -> None:
    told = register(name)
    assert sorted([*told["fields"], *told["unobserved"]]) == fields(ROOTS[name])
    assert len(told["unobserved"]) <= MOST_UNOBSERVED[name]


@pytest.mark.parametrize("name", sorted(ROOTS.keys() - NOT_YET))
def test_each_row_says_an_effect_and_names_a_test_that_is_there(name: str) -> None:
    for field, row in register(name)["fields"].items():
        file, _, test = row["test"].partition("::")
        assert row["effect"].strip(), field
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"def {test.rpartition('::')[2]}\(", source), f"{field}: there is no {row['test']}"


@pytest.mark.parametrize(("field", "test"), TRIED, ids=[field.rpartition(":")[2] for field, _ in TRIED])
def test_the_test_of_a_field_turns_red_without_it(field: str, test: str) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "fields.dropping", "-p", "no:cacheprovider", test]
    environment = {**os.environ, VARIABLE: field, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, f"{test} does not notice that {field} is gone:\n{done.stdout[-2000:]}"
