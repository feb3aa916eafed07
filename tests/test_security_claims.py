"""Each sentence of ``SECURITY.md`` that promises something names its tests, and so does each failure of the docs."""

from __future__ import annotations

import ast
import tomllib
from functools import cache

import pytest

from security_claims import TESTS, Claim, load, sentences


def test_each_sentence_has_one_row_and_each_row_a_sentence() -> None:
    rows = [row.says for row in load()]
    without = [one for one in sentences() if sum(one.startswith(says) for says in rows) != 1]
    assert not without, "name the tests of these in tests/security_claims.toml"
    assert [says for says in rows if sum(one.startswith(says) for one in sentences()) != 1] == []


@pytest.mark.parametrize("row", load(), ids=lambda row: row.says[:40])
def test_a_row_names_tests_that_are_there(row: Claim) -> None:
    assert bool(row.tests) != bool(row.advice)
    missing = [one for one in row.tests if one.partition("::")[2] not in _tests(one.partition("::")[0])]
    assert not missing


def test_each_failure_of_the_page_on_reliability_has_tests_that_are_there() -> None:
    page = (TESTS.parent / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = tomllib.loads((TESTS / "reliability_claims.toml").read_text(encoding="utf-8"))
    tables = [page.partition(f"\n| {head} |")[2].partition("\n\n")[0] for head in ("what breaks", "it ends")]
    failures = [line.split("|")[1].strip() for table in tables for line in table.splitlines()[2:]]
    assert failures == list(rows)
    named = [one.partition("::") for tests in rows.values() for one in tests]
    assert [(file, name) for file, _, name in named if name not in _tests(file)] == []


@cache
def _tests(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))
