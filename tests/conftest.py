"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import hypothesis
import pytest

from sublet.workspace.ssh import tuning as ssh_tuning
from support.command_server import FORKED_DAEMONS
from support.deep_tree import remove_deep

os.environ.setdefault(FORKED_DAEMONS, "1")

# A busy machine is no failure, and what failed once fails again.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True)
hypothesis.settings.load_profile("suite")


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the daemon does."""
    return "asyncio"


@pytest.fixture(autouse=True)
def no_deep_tree_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove directories that pytest can't remove: it calls itself for each level."""
    # Asked for first, so that it is still known when the test is over.
    scratch: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    remove_deep(scratch)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what is skipped where a run as an ordinary user wants to know, so that root runs it."""
    noted = os.environ.get("SUBLET_TEST_SKIPPED")
    if noted and report.skipped and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(noted).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")


@pytest.fixture(params=["tuned", "as it is"])
def tuned_or_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with asyncssh made faster, and once more with asyncssh as it is."""
    tuned: bool = request.param == "tuned"
    if tuned and asyncssh.__version__ != ssh_tuning.TUNED_VERSION:
        pytest.skip("this version of asyncssh is not tuned")
    if not tuned:
        monkeypatch.setattr(ssh_tuning, "TUNED_VERSION", "none")
    return tuned
