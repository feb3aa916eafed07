"""The daemon as a whole, in this process: it starts or says why not, and stops in order whatever runs."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from sublet.a2a_client.client import A2APeerLink
from sublet.app.running import run_daemon
from sublet.daemon.api.daemon import SHOW_STATUS, STOP, StatusView
from sublet.daemon.api.delegation_fields import OneDelegation
from sublet.daemon.api.delegations import CREATE_DELEGATION, GET_DELEGATION, WAIT_FOR_END, CreateDelegation, WaitForEnd
from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.peers import (
    ADD_PEER,
    CREATE_PAIR_LINK,
    LIST_PEERS,
    REMOVE_PEER,
    AddPeer,
    CreatePairLink,
    OnePeer,
)
from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.config.daemon_config import DaemonConfig
from sublet.daemon.config.paths import Home, resolve_home
from sublet.daemon.control.client import ControlClient
from sublet.daemon.operations.document import declarations
from sublet.daemon.rooms.bus_port import BusPort
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.workspace.mount.table import mounted_below
from sublet.workspace.sandbox.cage import Cages
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.staging.private_views import Staging

pytestmark = pytest.mark.anyio
START_SECONDS = 20


class Running:
    """A daemon of this process; ``stop`` returns when it has ended."""

    def __init__(self, home: Home, status: StatusView, ended: asyncio.Event) -> None:
        self.home = home
        self.status = status
        self.control = ControlClient(home)
        self._ended = ended

    async def stop(self) -> None:
        await self.control.call(STOP, Nothing())
        await self._ended.wait()


def config(root: Path, *, a2a: str = "127.0.0.1:0", sftp: str = "127.0.0.1:0") -> DaemonConfig:
    return DaemonConfig(home=resolve_home({"SUBLET_HOME": str(root)}), a2a=a2a, sftp=sftp)


@asynccontextmanager
async def daemon(root: Path, made: DaemonConfig | None = None) -> AsyncIterator[Running]:
    made = made or config(root)
    ready, ended = asyncio.Event(), asyncio.Event()
    statuses: list[StatusView] = []

    def on_ready(status: StatusView) -> None:
        statuses.append(status)
        ready.set()

    async def run() -> None:
        try:
            await run_daemon(made, on_ready)
        finally:
            ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        with anyio.fail_after(START_SECONDS):
            await ready.wait()
        running = Running(made.home, statuses[0], ended)
        yield running
        if not ended.is_set():
            await running.stop()


async def test_every_declared_operation_is_served(tmp_path: Path) -> None:
    async with daemon(tmp_path) as running, raw(running.home) as http:
        for _, stated in declarations():
            for one in stated.values():
                path = re.sub(r"{[^}]*}", "x", one.path)
                # Of a path that is served only the method is wrong.
                assert (await http.request("TRACE", path)).status_code == 405, one.name


def raw(home: Home) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=home.control_socket), base_url="http://sublet", trust_env=False
    )


@asynccontextmanager
async def paired(root: Path) -> AsyncIterator[tuple[Running, Running]]:
    async with daemon(root / "a") as lender, daemon(root / "b") as worker:
        link = await worker.control.call(CREATE_PAIR_LINK, CreatePairLink())
        await lender.control.call(ADD_PEER, AddPeer(link=link.link, name="bob"))
        yield lender, worker


async def lend(lender: Running, project: Path, prompt: str) -> str:
    """Delegate ``project`` and return the id once the work runs."""
    request = CreateDelegation(workspace_dir=str(project), peer="bob", prompt=prompt)
    found = (await lender.control.call(CREATE_DELEGATION, request)).delegation_id
    cursor = 0
    with anyio.fail_after(START_SECONDS):
        while not (project / "began").exists():
            cursor = (
                await lender.control.call(READ_EVENTS, ReadEvents(cursor=cursor, delegation_id=found, timeout=1))
            ).cursor
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    return project


@pytest.mark.parametrize("which", ["a2a", "sftp"])
async def test_a_port_that_is_taken_is_one_failure_and_not_a_group(tmp_path: Path, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        made = config(tmp_path, a2a=address) if which == "a2a" else config(tmp_path, sftp=address)
        with pytest.raises(SubletError) as no:
            await run_daemon(made)
    assert no.value.code is LocalCode.UNAVAILABLE
    # It can be started as soon as the port is free.
    async with daemon(tmp_path) as running:
        assert running.status.peers == 0


async def test_a_start_that_a_bad_file_ends_closes_what_it_has_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, closed = config(tmp_path), list[str]()
    opened: list[tuple[type, str]] = [
        (AuditLog, "close"),
        (BusPort, "close"),
        (A2APeerLink, "aclose"),
        (DataPlane, "close"),
        (Staging, "close"),
        (Cages, "close"),
    ]

    def noted(kind: type, name: str) -> Callable[..., object]:
        close = getattr(kind, name)

        def call(*given: object) -> object:
            closed.append(kind.__name__)
            return close(*given)

        return call

    for kind, name in opened:
        monkeypatch.setattr(kind, name, noted(kind, name))
    agent_file = Path(made.home.config_dir) / "agent.json"
    agent_file.parent.mkdir(parents=True)
    agent_file.write_text("{")
    with pytest.raises(SubletError) as no:
        await run_daemon(made)
    assert no.value.code is LocalCode.INVALID_ARGUMENT
    assert closed == [kind.__name__ for kind, _ in reversed(opened)]


async def test_a_default_port_that_gave_way_is_remarked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("sublet.daemon.config.daemon_config.DEFAULT_A2A", f"127.0.0.1:{port}")
        made = DaemonConfig(home=resolve_home({"SUBLET_HOME": str(tmp_path)}), sftp="127.0.0.1:0")
        async with daemon(tmp_path, made) as running:
            # Here another daemon may have the default ports of the web page and the bus.
            [remark] = [one for one in running.status.remarks if "A2A" in one]
    assert remark.startswith(f"the default A2A port {port} is taken by another program, so it is ")
    assert running.status.a2a_url.rpartition(":")[2].rstrip("/") in remark
    async with daemon(tmp_path) as running:
        assert not [one for one in running.status.remarks if "A2A" in one], "a port that was chosen is no news"


async def test_default_ports_of_page_and_bus_that_gave_way_are_remarked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as web, socket.create_server(("127.0.0.1", 0)) as bus:
        monkeypatch.setattr("sublet.daemon.config.daemon_config.DEFAULT_WEB_PORT", web.getsockname()[1])
        monkeypatch.setattr("sublet.daemon.config.daemon_config.DEFAULT_BUS_PORT", bus.getsockname()[1])
        home = resolve_home({"SUBLET_HOME": str(tmp_path)})
        async with daemon(tmp_path, DaemonConfig(home=home, a2a="127.0.0.1:0", sftp="127.0.0.1:0")) as running:
            remarks = running.status.remarks
            shown = running.status.bus
            taken = web.getsockname()[1]
    assert shown is not None
    assert f"the bus of rooms is at port {shown.rpartition(':')[2]}, since the default" in remarks[-1]
    assert any(f"the default web port {taken} is taken" in one for one in remarks)


async def test_both_sides_stop_while_work_runs(tmp_path: Path, project: Path) -> None:
    async with paired(tmp_path) as (lender, worker):
        found = await lend(lender, project, "touch began; sleep 600")
        async with anyio.create_task_group() as group:
            group.start_soon(lender.stop)
            group.start_soon(worker.stop)
    assert mounted_below(tmp_path) == []
    async with daemon(tmp_path / "a") as again:
        view = await again.control.call(GET_DELEGATION, OneDelegation(delegation_id=found))
        assert view.state is DelegationState.CANCELLED
        assert view.audit is not None
        assert view.audit.added == ["began"]


async def test_the_workers_stop_ends_the_lenders_delegation(tmp_path: Path, project: Path) -> None:
    async with paired(tmp_path) as (lender, worker):
        found = await lend(lender, project, "touch began; sleep 600")
        await worker.stop()
        view = await lender.control.call(WAIT_FOR_END, WaitForEnd(delegation_id=found, timeout=START_SECONDS))
        assert view.state is DelegationState.CANCELLED
        assert view.error is not None
        assert view.error.message == "bob: the executor's daemon was stopped"
        assert view.audit is not None


async def test_the_lenders_stop_ends_the_workers_assignment(tmp_path: Path, project: Path) -> None:
    async with paired(tmp_path) as (lender, worker):
        await lend(lender, project, "touch began; sleep 600")
        assert (await worker.control.call(SHOW_STATUS, Nothing())).assignments_active == 1
        await lender.stop()
        with anyio.fail_after(START_SECONDS):
            while (await worker.control.call(SHOW_STATUS, Nothing())).assignments_active:
                await asyncio.sleep(0.02)
        assert mounted_below(tmp_path) == []


async def test_removing_a_peer_ends_what_runs_for_it(tmp_path: Path, project: Path) -> None:
    async with paired(tmp_path) as (lender, worker):
        found = await lend(lender, project, "touch began; sleep 600")
        [alice] = await worker.control.call(LIST_PEERS, Nothing())
        await worker.control.call(REMOVE_PEER, OnePeer(name=alice.name))
        assert (await worker.control.call(SHOW_STATUS, Nothing())).assignments_active == 0
        # Whether the lender hears why, or only that it is no longer let in, depends on which comes first.
        view = await lender.control.call(WAIT_FOR_END, WaitForEnd(delegation_id=found, timeout=START_SECONDS))
        assert view.state in (DelegationState.CANCELLED, DelegationState.ERROR)
        assert view.audit is not None
