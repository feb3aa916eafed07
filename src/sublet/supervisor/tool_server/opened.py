"""The socket of one job: made in the job's private directory, answered while the job runs, and only to its agent."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from sublet.disk.private_dir import PrivateDir
from sublet.supervisor.acp.asking import ToolQuestions
from sublet.supervisor.job import Job
from sublet.supervisor.program import program_paths
from sublet.supervisor.tool_server import relay
from sublet.supervisor.tool_server.names import NamedOffer, permission_name
from sublet.supervisor.tools import ToolSource
from sublet.unix_sockets import UnixStream, accept

if TYPE_CHECKING:
    from sublet.supervisor.tool_server.served import ServedTools

MAX_CONNECTIONS: Final = 8
DIRECTORY: Final = "sublet-tools"
"""Below the job's scratch directory."""
RELAY: Final = "relay.py"
PYTHON: Final = os.path.realpath(sys.executable)

log = structlog.get_logger(__name__)

Whose = Callable[[int], bool]
"""Tells whether a process, by its pid, is one of the job's agent."""


@dataclass(frozen=True, slots=True)
class Entry:
    """How the agent program starts its end: a command of the sandbox."""

    command: str
    args: tuple[str, ...]


def interpreter_paths() -> tuple[Path, ...]:
    """Return what the sandbox has to show for ``Entry.command`` to run."""
    return tuple(program_paths(PYTHON, ""))


class OwnTools:
    """The tools that one job's agent is offered.

    Args:
        offers: the tools, by the names that the agent sees.
        source: makes the calls.
        whose: tells whether whoever connects is the agent; anybody else is sent away.
        agent_id: of the agent.
    """

    def __init__(self, offers: Mapping[str, NamedOffer], source: ToolSource, whose: Whose, agent_id: str) -> None:
        self._agent_id = agent_id
        self._offers = offers
        self._source = source
        self._whose = whose

    @property
    def permissions(self) -> frozenset[str]:
        """What requests for permission to call them are for."""
        return frozenset(map(permission_name, self._offers))

    @asynccontextmanager
    async def opened(self, job: Job, asking: ToolQuestions, version: str) -> AsyncIterator[Entry]:
        """Answer on the socket of ``job`` while the block runs.

        Args:
            job: whose calls they are.
            asking: asks the gate before each.
            version: ours.
        """
        home = job.scratch / DIRECTORY
        listening = await asyncio.to_thread(_listen, job.scratch)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_accept, listening, self._whose, lambda: self._served(job, asking, version))
                yield Entry(PYTHON, ("-I", "-S", str(home / RELAY)))
                group.cancel_scope.cancel()
        finally:
            listening.close()

    def _served(self, job: Job, asking: ToolQuestions, version: str) -> ServedTools:
        from sublet.supervisor.tool_server.served import ServedTools  # with it comes the SDK, once somebody connects

        return ServedTools(self._offers, self._source, job, asking, version, self._agent_id)


async def _accept(listening: socket.socket, whose: Whose, make: Callable[[], ServedTools]) -> None:
    free = asyncio.Semaphore(MAX_CONNECTIONS)
    served: ServedTools | None = None

    async def serve(stream: UnixStream, tools: ServedTools) -> None:
        try:
            if await stream.spoken():
                await tools.serve(stream)
        except Exception:
            log.exception("a connection of an agent's tools broke")
        finally:
            stream.close()
            free.release()

    async with anyio.create_task_group() as group:
        while True:
            await free.acquire()
            try:
                stream = await accept(listening)
            except OSError:
                free.release()
                await asyncio.sleep(1)  # no descriptors left, or it was gone at once
                continue
            if not whose(stream.peer_pid):
                log.warning("somebody else wanted the tools of an agent", pid=stream.peer_pid)
                stream.close()
                free.release()
                continue
            if served is None:
                served = make()
            group.start_soon(serve, stream, served)


def _listen(scratch: Path) -> socket.socket:
    """Make the directory, the relay in it, and the socket beside it: anew for each prompt, whatever is there."""
    code = Path(relay.__file__).read_bytes()
    with PrivateDir.open(scratch) as private, private.directory(DIRECTORY, fresh=True) as directory:
        directory.write(RELAY, code)
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(made.fileno(), 0o600)
            # By its descriptor, since the whole path may be too long for a socket's name.
            made.bind(f"/proc/self/fd/{directory.fileno()}/{relay.SOCKET}")
            made.listen(MAX_CONNECTIONS)
            made.setblocking(False)
        except OSError:
            made.close()
            raise
    return made
