"""Each case that was found once has a test that is named after it: by its name, its docstring, or its module's."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
CASES: dict[str, str] = tomllib.loads((TESTS / "cases.toml").read_text(encoding="utf-8"))
_ID = re.compile(r"(?<![A-Za-z0-9])[Dd]([0-9]{2})(?![0-9A-Za-z])")
_TEST = ast.FunctionDef | ast.AsyncFunctionDef


def ids(text: str) -> set[str]:
    """Return the ids of cases in the words of a test; an underscore ends a word of a name."""
    return {f"D{number}" for number in _ID.findall(text.replace("_", " "))}


@cache
def named() -> tuple[tuple[str, str], ...]:
    """Return each id after which a test is named, with the test."""
    found: list[tuple[str, str]] = []
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if not ids(text):
            continue
        module = ast.parse(text)
        where = path.relative_to(TESTS).as_posix()
        tests = [one for one in module.body if isinstance(one, _TEST) and one.name.startswith("test_")]
        found += [(one, where) for one in ids(ast.get_docstring(module) or "") if tests]
        for test in tests:
            of_test = ids(f"{test.name} {ast.get_docstring(test) or ''}")
            found += [(one, f"{where}::{test.name}") for one in of_test]
    return tuple(found)


def test_each_case_has_a_test() -> None:
    assert sorted(set(CASES) - {one for one, _ in named()}) == []


def test_a_test_is_named_after_a_case_that_there_is() -> None:
    assert [(one, where) for one, where in named() if one not in CASES] == []


def test_what_counts_as_the_id_of_a_case() -> None:
    assert ids("test_d04_a_submodule") == {"D04"}
    assert ids("test_cases_d02_and_d03") == {"D02", "D03"}
    assert ids("D20, D21: paths") == {"D20", "D21"}
    assert ids("0x1D20 D2a U+D800 abcD20 D120 test_c44") == set()
