"""The load benchmark in its short form: everything runs, and nothing is left of the leases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(180)
def test_many_leases_leave_nothing() -> None:
    argv = [sys.executable, str(ROOT / "benchmarks" / "soak.py"), "--quick", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert rows[0]["what"] == "4 leases at once, all at work after"
    assert all(row["value"] >= 0 or "growth" in row["what"] or "lease" in row["what"] for row in rows)


def test_the_page_has_a_place_for_what_it_quotes() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    for name in ("crashes", "soak", "trees"):
        assert page.count(f"<!-- benchmark:{name} -->\n") == 1, name
