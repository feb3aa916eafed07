"""What tests of keeping share."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.workspace.audit import snapshot
from support.kept import LiveLease, settled


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty directory to lend."""
    found = tmp_path / "root"
    found.mkdir()
    return found


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a state directory; snapshots trust the times of files that have just been made."""
    monkeypatch.setattr(snapshot, "SETTLED_NS", 0)
    found = tmp_path / "state"
    found.mkdir()
    return found


def lend(state: Path, root: Path) -> LiveLease:
    """Lend a directory all of whose files are old enough for the snapshot."""
    settled(root)
    return LiveLease(state, root)
