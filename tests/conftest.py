"""Fixtures that every test may use."""

from __future__ import annotations

import asyncssh
import pytest

from sublet.workspace.ssh import tuning as ssh_tuning


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the daemon does."""
    return "asyncio"


@pytest.fixture(params=["tuned", "as it is"])
def tuned_or_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with asyncssh made faster, and once more with asyncssh as it is."""
    tuned: bool = request.param == "tuned"
    if tuned and asyncssh.__version__ != ssh_tuning.TUNED_VERSION:
        pytest.skip("this version of asyncssh is not tuned")
    if not tuned:
        monkeypatch.setattr(ssh_tuning, "TUNED_VERSION", "none")
    return tuned
