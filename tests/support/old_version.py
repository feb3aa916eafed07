"""The source of an earlier version of Sublet, out of this repository's own history, to be run beside this one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

FIRST: Final = "4f903c7"
"""The version of the first frozen state: rooms over plain TCP on one machine, no file that names the layout."""
ROOT: Final = Path(__file__).parents[2]


def old_source(commit: str, place: Path) -> Path:
    """Write the source of ``commit`` below ``place`` and return what goes into ``PYTHONPATH``; skip without history."""
    archive = place / "old.tar"
    done = subprocess.run(
        ["git", "-C", ROOT, "archive", "--output", archive, commit, "src", "agent.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1:] or ["git archive failed"]
        pytest.skip(f"the history of {commit} is not here, as in a shallow clone: {why[0]}")
    subprocess.run(["tar", "-xf", archive, "-C", place], check=True)
    archive.unlink()
    return place / "src"


def environment(source: Path) -> dict[str, str]:
    """Return what has the ``sublet`` command of this checkout run another version's source, its daemon included."""
    return {"PYTHONPATH": str(source)}
