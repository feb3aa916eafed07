"""Mounts that are gone after every test, and asyncssh both ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.mount.table import mounted_below
from sublet.workspace.ssh import tuning as ssh_tuning


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[Mounts]:
    """Mount points of one executor."""
    mounts = Mounts(tmp_path / "mounts")
    yield mounts
    mounts.reap()
    assert mounted_below(mounts.root) == []


@pytest.fixture(params=["tuned", "as it is"])
def tuned_or_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with asyncssh made faster, and once more with asyncssh as it is."""
    tuned: bool = request.param == "tuned"
    if tuned and asyncssh.__version__ != ssh_tuning.TUNED_VERSION:
        pytest.skip("this version of asyncssh is not tuned")
    if not tuned:
        monkeypatch.setattr(ssh_tuning, "TUNED_VERSION", "none")
    return tuned
