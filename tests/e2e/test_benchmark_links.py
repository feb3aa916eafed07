"""The page of reliability quotes what the product states."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINKS = [sys.executable, str(ROOT / "benchmarks" / "links.py")]


def test_the_page_states_the_bounds_that_the_product_obeys() -> None:
    table = subprocess.run([*LINKS, "--bounds"], capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert f"<!-- benchmark:bounds -->\n{table}<!-- /benchmark -->" in page
    assert page.count("<!-- benchmark:links -->\n") == 1
