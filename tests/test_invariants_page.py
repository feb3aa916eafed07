"""Each invariant of the page is kept at a place that is there, and by a test that is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "invariants.md").read_text()
PLACES = re.findall(r"`(sublet[\w.]+:[\w.]+)`", PAGE)
TESTS = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)


def test_each_invariant_has_a_place_and_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| **")]
    assert len(rows) >= 20
    assert all(len(re.findall(r"`(sublet|tests/)", row)) >= 2 for row in rows)


@pytest.mark.parametrize("place", PLACES)
def test_each_place_is_there(place: str) -> None:
    name, _, path = place.partition(":")
    found: object = importlib.import_module(name)
    for part in path.split("."):
        found = getattr(found, part)


@pytest.mark.parametrize(("file", "test"), TESTS)
def test_each_test_is_there(file: str, test: str) -> None:
    text = (ROOT / file).read_text()
    assert not test or f"def {test}(" in text
