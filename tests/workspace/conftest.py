"""Mounts that are gone after every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.mount.table import mounted_below


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[Mounts]:
    """Mount points of one executor."""
    mounts = Mounts(tmp_path / "mounts")
    yield mounts
    mounts.reap()
    assert mounted_below(mounts.root) == []
