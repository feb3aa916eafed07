"""``make demo`` tells the truth: it runs, repairs the project, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def test_the_demo_repairs_the_project_and_cleans_up(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)],
        env={**os.environ, "TMPDIR": str(tmp_path), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    failed, _, repaired = done.stdout.partition("FAILED (failures=1)")
    assert failed
    assert "hidden from bob  .env" in repaired
    assert "+    return (ordered[middle - 1] + ordered[middle]) / 2" in repaired
    assert "There is no .env here." in repaired
    assert repaired.rstrip().endswith("no process, mount or file of this demo is left.")
    assert list(tmp_path.iterdir()) == []
