"""Short helper programs and sshfs: started on the loop, waited for with a bound, and left alone when they hang."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable, Sequence

from sublet import deadlines

MAX_STDERR_BYTES = 4096
_KILL_SECONDS = 0.2


class ChildProcess(asyncio.SubprocessProtocol):
    """One process of ours that may block for ever on a dead mount, and so is never waited for without a bound.

    ``stderr`` is the beginning of what it said. ``exited`` is set when it has ended.
    """

    def __init__(self, on_exit: Callable[[], None] | None = None) -> None:
        self.stderr = bytearray()
        self.exited = asyncio.Event()
        self._on_exit = on_exit
        self._transport: asyncio.SubprocessTransport | None = None

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        sock: socket.socket | None = None,
        on_exit: Callable[[], None] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> ChildProcess:
        """Start ``argv`` away from every mount and with nothing of our environment but PATH.

        Args:
            argv: the program and its arguments.
            sock: becomes both its standard input and output; without it, it has neither.
            on_exit: called when it has ended.
            pass_fds: descriptors that it gets too, under their own numbers.

        Raises:
            OSError: the program can't be started.
        """
        stream = subprocess.DEVNULL if sock is None else sock.fileno()
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: cls(on_exit),
            *argv,
            stdin=stream,
            stdout=stream,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            start_new_session=True,
            pass_fds=pass_fds,
        )
        return child

    @classmethod
    async def run(cls, argv: Sequence[str], seconds: float) -> int | None:
        """Run ``argv`` and return its exit status; None where it can't be started or takes longer than ``seconds``."""
        try:
            child = await cls.start(argv)
        except OSError:
            return None
        return await child.ended(seconds)

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._transport is not None
        return self._transport.get_pid()

    @property
    def status(self) -> int | None:
        """The exit status, or the number of the signal that ended it, negative; None while it runs."""
        return self._transport.get_returncode() if self._transport is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the handle to the process."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the first ``MAX_STDERR_BYTES`` of standard error, and drain the rest."""
        self.stderr += data[: MAX_STDERR_BYTES - len(self.stderr)]

    def process_exited(self) -> None:
        """Tell whoever waits."""
        self.exited.set()
        if self._on_exit is not None:
            self._on_exit()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the process once it has ended and its standard error too."""
        if self._transport is not None:
            self._transport.close()

    async def ended(self, seconds: float) -> int | None:
        """Wait up to ``seconds`` and return the exit status; kill it and return None where it takes longer."""
        assert self._transport is not None
        try:
            async with deadlines.timeout(seconds):
                await self.exited.wait()
        except TimeoutError:
            # In an uninterruptible wait even this has no effect before the mount is gone: then it ends by itself.
            self._transport.close()
            try:
                async with deadlines.timeout(_KILL_SECONDS):
                    await self.exited.wait()
            except TimeoutError:
                pass
            return None
        return self._transport.get_returncode()
