"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import hypothesis
import pytest

from sublet.workspace.ssh import tuning as ssh_tuning
from support import costs
from support.budgets import examples
from support.command_server import FORKED_DAEMONS
from support.deep_tree import remove_deep
from support.noise import begin_anew
from support.once_more import OnceMore
from support.plain_logs import log_plainly
from support.quick import is_quick
from support.shared_servers import SHARED, SharedServers

QUICK_EXAMPLES = 10
ONCE_MORE = OnceMore()

os.environ.setdefault(FORKED_DAEMONS, "1")

# A busy machine is no failure, and what failed once fails again.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=examples())
hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=QUICK_EXAMPLES)
hypothesis.settings.load_profile("suite")

log_plainly()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of ``make check``."""
    parser.addoption("--quick", action="store_true", help="only what starts no program, with few drawn examples")


def pytest_configure(config: pytest.Config) -> None:
    """Draw few examples where the run is to be quick."""
    if config.getoption("--quick"):
        hypothesis.settings.load_profile("quick")
    if place := os.environ.get(costs.PLACE):
        config.pluginmanager.register(costs.Costs(Path(place)))
    if config.getoption("dist", "no") != "no" and not config.getoption("--quick") and SHARED not in os.environ:
        config.add_cleanup(SharedServers().close)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what starts programs where the run is to be quick."""
    if config.getoption("--quick") and collection_path.name.startswith("test_") and collection_path.suffix == ".py":
        return None if is_quick(collection_path) else True
    return None


def pytest_collection() -> None:
    """Do not look for garbage while everything is imported: there is none, and each look goes through all there is."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from here on, but not among what was imported."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give out work as ``support.scheduling`` says, unless a run asks for another way."""
    if config.getoption("dist") != "loadfile":
        return None
    from support.scheduling import BySharing

    return BySharing(config, log)


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio, as the daemon does."""
    return "asyncio"


@pytest.fixture(autouse=True)
def noise_is_the_same() -> None:
    """Draw the same bytes in a test whichever tests came before it."""
    begin_anew()


@pytest.fixture(autouse=True)
def no_deep_tree_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove directories that pytest can't remove: it calls itself for each level."""
    # Asked for first, so that it is still known when the test is over.
    scratch: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    remove_deep(scratch)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what failed; and what is skipped where a run as an ordinary user wants to know, so that root runs it."""
    ONCE_MORE.note(report)
    noted = os.environ.get("SUBLET_TEST_SKIPPED")
    if noted and report.skipped and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(noted).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note what could not be collected."""
    ONCE_MORE.note(report)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """Note that a worker ended early."""
    if error is not None:
        ONCE_MORE.lost()


def pytest_sessionfinish(exitstatus: int) -> None:
    """Name what ``scripts/test`` may run once more."""
    ONCE_MORE.write(exitstatus)


@pytest.fixture(params=["tuned", "as it is"])
def tuned_or_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with asyncssh made faster, and once more with asyncssh as it is."""
    tuned: bool = request.param == "tuned"
    if tuned and asyncssh.__version__ != ssh_tuning.TUNED_VERSION:
        pytest.skip("this version of asyncssh is not tuned")
    if not tuned:
        monkeypatch.setattr(ssh_tuning, "TUNED_VERSION", "none")
    return tuned
