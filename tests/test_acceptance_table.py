"""``docs/acceptance.md`` names tests that are there, at least one in every row."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROWS = [
    line
    for line in (ROOT / "docs" / "acceptance.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| what is", "| there |"))
]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_row_names_tests_that_are_there() -> None:
    assert len(ROWS) > 30
    for row in ROWS:
        named = NAMED.findall(row)
        assert named, row
        for file, test in named:
            source = (ROOT / file).read_text(encoding="utf-8")
            assert re.search(rf"^(async )?def {test}\(", source, re.MULTILINE), f"{file}::{test}"
