"""Fixtures of the MCP face."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator

import pytest

from sublet.daemon.config.paths import Home, resolve_home
from support.fake_daemon_api import FakeDaemonApi


@pytest.fixture
def home() -> Iterator[Home]:
    """A daemon's home whose path is short enough for a socket."""
    root = tempfile.mkdtemp(prefix="sublet-test-")
    yield resolve_home({"SUBLET_HOME": root})
    shutil.rmtree(root)


@pytest.fixture
def api() -> FakeDaemonApi:
    """A daemon that does what the test says."""
    return FakeDaemonApi()


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """Both protocol eras: 2026 envelope, 2025 handshake."""
    era: str = request.param
    return era
