"""Two paired daemons in this process, and all that people and programs do with them, once."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from structlog.testing import capture_logs

from app.test_running import Running, paired
from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.delegation_fields import OneDelegation
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import (
    CANCEL_DELEGATION,
    CREATE_DELEGATION,
    WAIT_FOR_END,
    CreateDelegation,
    WaitForEnd,
)
from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.peers import SHOW_DIRECTORY
from sublet.daemon.api.policy import READ_AUDIT_LOG, ReadAuditLog
from sublet.daemon.api.results import APPLY_RESULT, ApplyResult
from sublet.daemon.api.rooms import LIST_ROOMS, WHOAMI
from sublet.daemon.api.sessions import ASK, AskRequest
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import DelegationState

SECONDS = 60.0


class BusyPair:
    """What is done with the two."""

    def __init__(self, root: Path, lender: Running, worker: Running) -> None:
        self.root = root
        self.lender = lender
        self.worker = worker
        self._projects = 0

    def project(self) -> Path:
        """Return a directory that nobody has used."""
        self._projects += 1
        made = self.root / f"project-{self._projects}"
        made.mkdir()
        return made

    async def delegate(self, prompt: str = "echo works > made", **more: object) -> DelegationView:
        """Delegate a directory and return how it ended."""
        project = self.project()
        request = CreateDelegation(workspace_dir=str(project), peer="bob", prompt=prompt, **more)  # type: ignore[arg-type]
        with anyio.fail_after(SECONDS):
            view = await self.lender.control.call(CREATE_DELEGATION, request)
            return await self.lender.control.call(
                WAIT_FOR_END, WaitForEnd(delegation_id=view.delegation_id, timeout=MAX_WAIT_SECONDS)
            )

    async def serves(self) -> None:
        """Assert that both daemons serve and all of their services run."""
        for daemon in (self.lender, self.worker):
            with anyio.fail_after(SECONDS):
                while any(
                    one.state != "running" for one in (await daemon.control.call(SHOW_STATUS, Nothing())).services
                ):
                    await anyio.sleep(0.01)

    async def check(self) -> None:
        """Assert that both daemons serve, all of their services run, and one does work for the other."""
        await self.serves()
        view = await self.delegate()
        assert view.state is DelegationState.COMPLETED, view

    async def everything(self) -> None:
        """Do each thing once; that some of it fails is no failure here."""
        for work in (
            self.delegate,
            self.staged,
            self.cancelled,
            self.talk,
            self.look,
            self.ask,
            self.mcp,
            self.strangers,
        ):
            try:
                await work()
            except TimeoutError as hung:
                raise RuntimeError(f"{work.__name__} never ended") from hung
            except (SubletError, OSError, EOFError):
                continue

    async def staged(self) -> None:
        """Apply a staged result."""
        view = await self.delegate(result_mode="staged")
        await self.lender.control.call(APPLY_RESULT, ApplyResult(delegation_id=view.delegation_id))

    async def cancelled(self) -> None:
        """Delegate, and cancel it."""
        request = CreateDelegation(workspace_dir=str(self.project()), peer="bob", prompt="sleep 60", watch=True)
        with anyio.fail_after(SECONDS):
            view = await self.lender.control.call(CREATE_DELEGATION, request)
            await self.lender.control.call(CANCEL_DELEGATION, OneDelegation(delegation_id=view.delegation_id))
            await self.lender.control.call(
                WAIT_FOR_END, WaitForEnd(delegation_id=view.delegation_id, timeout=MAX_WAIT_SECONDS)
            )

    async def talk(self) -> None:
        """Ask for rooms."""
        with anyio.fail_after(SECONDS):
            await self.lender.control.call(WHOAMI, Nothing())
            await self.lender.control.call(LIST_ROOMS, Nothing())

    async def look(self) -> None:
        """Look at peers and at the audit log, and wait for news."""
        with anyio.fail_after(SECONDS):
            await self.lender.control.call(READ_AUDIT_LOG, ReadAuditLog(cursor=0, timeout=0.1))
            await self.lender.control.call(SHOW_DIRECTORY, Nothing())
            with anyio.move_on_after(0.1):
                await self.lender.control.call(READ_EVENTS, ReadEvents(cursor=1 << 40, timeout=5))

    async def ask(self) -> None:
        """Ask the shell of a daemon something."""
        with anyio.fail_after(SECONDS):
            async for _ in self.worker.control.stream(ASK, AskRequest(text="echo hello")):
                pass

    async def mcp(self) -> None:
        """Connect a host."""
        asked = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "probe", "version": "1"},
            },
        }
        with anyio.fail_after(SECONDS):
            reader, writer = await asyncio.open_unix_connection(self.lender.home.mcp_socket)
            try:
                writer.write(json.dumps(asked).encode() + b"\n")
                assert b"serverInfo" in await reader.readline()
            finally:
                writer.close()

    async def strangers(self) -> None:
        """Connect to every port and say nothing that makes sense."""
        status = self.lender.status
        for address in (status.sftp, status.a2a_url.rpartition("/")[2]):
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"\xff\xfe nonsense\r\n\r\n")
            with anyio.move_on_after(1):
                await reader.read(1 << 16)
            writer.close()


@asynccontextmanager
async def busy_pair() -> AsyncIterator[BusyPair]:
    """Run a pair while the block lasts; nothing of it is left afterwards.

    What the daemons log is not drawn, since that takes seconds for each failure that is thrown.
    """
    with tempfile.TemporaryDirectory(prefix="busy-") as directory, capture_logs():
        async with paired(Path(directory)) as (lender, worker):
            yield BusyPair(Path(directory), lender, worker)
