"""A gateway that is a program of ours: lines on its standard input and output, sandboxed, started again if it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import anyio
import structlog

from sublet import deadlines
from sublet.disk.private_dir import make_fresh
from sublet.disk.removal import is_removed
from sublet.protocol.errors import SubletError
from sublet.protocol.gateway import GatewayLines, MalformedGatewayMessage
from sublet.protocol.text import clean_line
from sublet.supervisor.gateways.module_file import GatewayModule
from sublet.supervisor.gateways.session import GatewaySession
from sublet.supervisor.guarded_process import Ended, GuardedProcess
from sublet.supervisor.launch import Launch, Sandbox
from sublet.supervisor.program import program_paths

READ_BYTES: Final = 65_536
HEALTHY_SECONDS: Final = 60.0
"""After which a program that ends counts as one that ends for the first time."""
MAX_BACKOFF_SECONDS: Final = 60.0
WRITE_SECONDS: Final = 10.0
"""How long a program may take to read what it is sent."""
STDERR_SECONDS: Final = 0.1
"""Between two looks at what a program says on its standard error."""
END_SECONDS: Final = 1.0
"""How long the end of a program is waited for that has closed its standard output."""
_ALWAYS: Final = ("PATH", "LANG", "LC_ALL", "TZ")

log = structlog.get_logger(__name__)


class StdioGateway:
    """Runs the program of one gateway.

    Args:
        module: the gateway.
        sandbox: confines it.
        home: a private directory of its own, which is made and removed.
        environ: from which the variables that the module names are taken; no others are seen.
        session: makes the session of one connection.
        ended: is told why a connection ended.
    """

    def __init__(
        self,
        module: GatewayModule,
        sandbox: Sandbox,
        home: Path,
        environ: Mapping[str, str],
        session: Callable[[], GatewaySession],
        ended: Callable[[str], None],
    ) -> None:
        assert module.process is not None
        self._module = module
        self._process = module.process
        self._sandbox = sandbox
        self._home = home
        self._environ = environ
        self._session = session
        self._ended = ended

    async def run(self) -> None:
        """Run it until cancelled, or until it has ended too often in a row; that is told, not raised."""
        attempt = 0
        try:
            await asyncio.to_thread(make_fresh, self._home)
            while True:
                began = anyio.current_time()
                why = await self._once()
                if anyio.current_time() - began > HEALTHY_SECONDS:
                    attempt = 0
                attempt += 1
                if attempt > self._module.restart.max_attempts:
                    self._ended(f"{why}; it was started {attempt} times, which is enough")
                    return
                self._ended(why)
                log.warning("a gateway ended and is started again", gateway=self._module.id, reason=why)
                await anyio.sleep(min(MAX_BACKOFF_SECONDS, self._module.restart.backoff_ms / 1000 * 2 ** (attempt - 1)))
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(is_removed, self._home)

    async def _once(self) -> str:
        """Run the program once and return why it ended."""
        env = {name: self._environ[name] for name in (*_ALWAYS, *self._process.environment) if name in self._environ}
        env = {"PATH": os.defpath, "LANG": "C.UTF-8", **env, "HOME": str(self._home), "TMPDIR": str(self._home)}
        argv = [self._process.command, *self._process.args]
        if shutil.which(argv[0], path=env["PATH"]) is None:
            return f"it can't be started: there is no program {argv[0]!r}, or it may not be run"
        try:
            launch = Launch(
                argv=argv,
                env=env,
                cwd=self._home,
                writable=[self._home],
                readable=await asyncio.to_thread(program_paths, argv[0], env["PATH"]),
                allow_network=self._process.network,
            )
            wrapped = await asyncio.to_thread(self._sandbox.wrap, launch)
            process = await GuardedProcess.start(wrapped, env, self._home, None)
        except (SubletError, OSError) as error:
            return f"it can't be started: {error}"
        session = self._session()
        why = "it ended"
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write, process, session)
                group.start_soon(self._errors, process)
                why = await self._read(process, session)
                why = session.lost or why
                group.cancel_scope.cancel()
        finally:
            session.lose(why)
            with anyio.CancelScope(shield=True):
                await process.close()
        return why

    async def _read(self, process: GuardedProcess, session: GatewaySession) -> str:
        lines = GatewayLines()
        try:
            while data := await process.stdout.read(READ_BYTES):
                for line in lines.receive(data):
                    await session.paced()
                    session.receive(line)
        except MalformedGatewayMessage as error:
            return f"what it says is not the protocol: {error}"
        return await _end_of(process)

    async def _write(self, process: GuardedProcess, session: GatewaySession) -> None:
        assert process.stdin is not None
        while (line := await session.next_line()) is not None:
            try:
                async with deadlines.timeout(WRITE_SECONDS):
                    process.stdin.write(line)
                    await process.stdin.drain()
            except (OSError, TimeoutError):
                break
        # Its session is over, or it does not read: it is ended, and the reader finds that.
        process.stop()

    async def _errors(self, process: GuardedProcess) -> None:
        while data := await process.stderr.read(READ_BYTES):
            log.info("gateway", gateway=self._module.id, said=clean_line(data[:2_000].decode("utf-8", "replace"), 500))
            await anyio.sleep(STDERR_SECONDS)


async def _end_of(process: GuardedProcess) -> str:
    """Return how a program that says nothing more has ended."""
    with anyio.move_on_after(END_SECONDS):
        match await process.wait():
            case Ended("exit", number):
                return f"its program ended with status {number}"
            case Ended("signal", number):
                return f"its program was ended by signal {number}"
            case Ended("limit", _, reason):
                return f"its program was ended at its limit of {reason}"
            case Ended(_, _, reason):
                return f"its program can't be started: {reason}"
    return "its program has closed its standard output"
