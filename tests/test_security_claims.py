"""Each sentence of ``SECURITY.md`` that promises something names its tests, and they are there."""

from __future__ import annotations

import ast
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


@cache
def _tests(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))
