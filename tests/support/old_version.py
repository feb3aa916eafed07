"""The source of an earlier version of Sublet, out of this repository's own history, to be run beside this one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest

FIRST: Final = "4f903c7"
"""The version of the first frozen state: rooms over plain TCP on one machine, no file that names the layout."""
ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / ".cache" / "older-versions"


def old_source(commit: str) -> Path:
    """Return what goes into ``PYTHONPATH`` for ``commit``; skip without history.

    It is written once and stays in the checkout's cache, since Python compiles all of it at its first start, which
    takes longer than what is tested with it: whatever is started must leave it as it is.
    """
    place = KEPT / commit
    if not place.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=KEPT))
        archive = made / "old.tar"
        done = subprocess.run(
            ["git", "-C", ROOT, "archive", "--output", archive, commit, "src", "agent.json"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            shutil.rmtree(made)
            why = done.stderr.strip().splitlines()[-1:] or ["git archive failed"]
            pytest.skip(f"the history of {commit} is not here, as in a shallow clone: {why[0]}")
        subprocess.run(["tar", "-xf", archive, "-C", made], check=True)
        archive.unlink()
        try:
            made.rename(place)
        except OSError:  # another worker was faster
            shutil.rmtree(made)
    return place / "src"


def environment(source: Path) -> dict[str, str]:
    """Return what has the ``sublet`` command of this checkout run another version's source, its daemon included."""
    return {"PYTHONPATH": str(source)}
