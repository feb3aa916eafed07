"""Every service of the daemon, failed on purpose while it serves: it is started again and the rest goes on."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from app.test_running import Running, paired
from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.delegations import CREATE_DELEGATION, WAIT_FOR_END, CreateDelegation, WaitForEnd
from sublet.daemon.api.operation import Nothing
from sublet.protocol.lifecycle import DelegationState
from support.services import Saboteur

pytestmark = pytest.mark.anyio
WAIT_SECONDS = 60.0
TOGETHER = 10
"""Services that one pair of daemons outlives."""
AT_LEAST_EACH = 5
"""Work is lent after so many of them have failed and run again: a delegation costs more than all the rest, and what a
service has not taken up again is missing in the next one, too."""

SERVICES = (
    "a2a",
    "addresses of peers",
    "audit log",
    "bus of federation",
    "control socket",
    "databases",
    "delegations",
    "end hooks",
    "events of offices",
    "federation",
    "federation over HTTP",
    "federation.toml",
    "file watcher",
    "gateways",
    "last words of agents",
    "mcp",
    "offices",
    "old rooms",
    "own device",
    "own sockets",
    "panels",
    "pruning",
    "rooms",
    "rooms of delegations",
    "rooms: acknowledgements",
    "rooms: catching up",
    "rooms: erasing",
    "rooms: hand over",
    "rooms: synchronisation",
    "sftp",
    "staged results",
    "stall watch",
    "heap",
    "supervisor",
    "web page",
    "what was set aside",
    "work for others",
)
"""All of them, in a daemon that has a peer and no extension with an index of its own."""


async def delegated(lender: Running, directory: Path) -> str:
    """Delegate a directory, wait for the end, and return what the worker wrote there."""
    directory.mkdir()
    request = CreateDelegation(workspace_dir=str(directory), peer="bob", prompt="echo works > made")
    view = await lender.control.call(CREATE_DELEGATION, request)
    view = await lender.control.call(
        WAIT_FOR_END, WaitForEnd(delegation_id=view.delegation_id, timeout=MAX_WAIT_SECONDS)
    )
    assert view.state is DelegationState.COMPLETED, view
    return (directory / "made").read_text()


@pytest.mark.parametrize("first", range(0, len(SERVICES), TOGETHER), ids=lambda first: SERVICES[first])
async def test_the_daemon_outlives_each_of_its_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    saboteur = Saboteur(monkeypatch)
    async with paired(tmp_path) as (lender, worker):
        with anyio.fail_after(WAIT_SECONDS):
            while not saboteur.run_everywhere(SERVICES):
                await anyio.sleep(0.01)
        assert {name for name in saboteur.names() if not name.startswith("rooms: index ")} == set(SERVICES)
        failed = SERVICES[first : first + TOGETHER]
        for number, name in enumerate(failed, 1):
            with anyio.fail_after(WAIT_SECONDS):
                await saboteur.fail(name)
            for daemon in (lender, worker):
                [found] = [
                    one for one in (await daemon.control.call(SHOW_STATUS, Nothing())).services if one.name == name
                ]
                assert (found.state, found.restarts) == ("running", 1), name
                assert found.last_error == "RuntimeError: thrown on purpose"
                assert found.failed_at is not None
            if number % AT_LEAST_EACH == 0 or name == failed[-1]:
                assert await delegated(lender, tmp_path / f"project-{number}") == "works\n", name
