"""The table of attacks in the docs is the one of ``tried``, and every row names a test that is there."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import cache
from pathlib import Path

import pytest

from attacks.tried_table import BEGIN, END, Tried, load, table

ROOT = Path(__file__).parent.parent.parent
_FUNCTION = re.compile(r"^[ \t]*(?:async[ ]+)?def[ ]+(\w+)[ ]*\(", re.MULTILINE)


def test_the_docs_have_the_table() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    start, end = page.index(BEGIN), page.index(END) + len(END)
    assert page[start:end] == table(), "run `make attacks`"


@pytest.mark.parametrize("row", load(), ids=lambda row: row.test.partition("::")[2])
def test_a_row_names_a_test_that_is_there(row: Tried) -> None:
    file, _, name = row.test.partition("::")
    assert name in functions_of(file)
    assert name.startswith("test_")
    assert "|" not in row.tries + row.stopped_by


@cache
def functions_of(file: str) -> Set[str]:
    """Return the names of all functions of a file, which many rows name; to parse so many files takes seconds."""
    return {*_FUNCTION.findall((ROOT / file).read_text(encoding="utf-8"))}
