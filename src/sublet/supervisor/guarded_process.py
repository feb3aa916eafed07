"""A command under its guard: starts it, tells how it ended, and ends all of it when asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sublet import deadlines

GUARD = Path(__file__).with_name("guard.py")
MAX_STATUS_BYTES = 4096
NO_INPUT: Final = asyncio.subprocess.DEVNULL
"""In place of a descriptor: a standard input that ends at once."""

KILL_SECONDS = 16.0
"""How long the end of a killed process tree is waited for. Longer than a dead mount can hold a process."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: by itself with a status, by a signal, at a watched limit, or not even started, for a reason.

    ``reason`` is the limit's name where it was a limit.
    """

    how: Literal["exit", "signal", "limit", "start"]
    number: int = 0
    reason: str = ""


class GuardedProcess:
    """One running command. Made by ``start``; ``close`` it always."""

    def __init__(
        self,
        guard: asyncio.subprocess.Process,
        control: int,
        readers: Sequence[asyncio.StreamReader],
        transports: Sequence[asyncio.BaseTransport],
        stdin: asyncio.StreamWriter | None = None,
    ) -> None:
        self._status, self.stdout, self.stderr = readers
        self.stdin = stdin
        self._guard = guard
        self._control = control
        self._transports = transports

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        stdin: int | None,
        *,
        groups: Sequence[int] = (),
        watched: Mapping[str, int] | None = None,
    ) -> GuardedProcess:
        """Start a command under its guard.

        Only the guard enters ``cwd``, so this returns at once even when that is on a dead mount.

        Args:
            argv: the command.
            env: exactly its environment.
            cwd: where it starts.
            stdin: descriptor of its standard input, which stays the caller's, or ``NO_INPUT``; None to write to it, by
                ``stdin``. Never a path: what the agent has put there could keep us waiting.
            groups: descriptors of control groups that it goes into.
            watched: limits that the guard holds it to: ``memory`` in bytes, ``processes``, ``cpu_time`` in seconds.

        Raises:
            OSError: the guard can't be started.
        """
        with contextlib.ExitStack() as opened:
            words = -1
            if stdin is None:
                theirs_in, words = os.pipe()
            elif stdin == NO_INPUT:
                theirs_in = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            else:
                theirs_in = os.dup(stdin)
            opened.callback(os.close, theirs_in)
            ends = [os.pipe() for _ in range(4)]
            (control_in, control), (status, status_in), (stdout, stdout_in), (stderr, stderr_in) = ends
            for theirs in (control_in, status_in, stdout_in, stderr_in):
                opened.callback(os.close, theirs)
            bounds = [f"join={group}" for group in groups]
            bounds += [f"{name}={value}" for name, value in (watched or {}).items()]
            command = [sys.executable, "-I", "-S", str(GUARD), str(control_in), str(status_in), str(cwd)]
            command += [",".join(bounds), *argv]
            try:
                guard = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=theirs_in,
                    stdout=stdout_in,
                    stderr=stderr_in,
                    pass_fds=(control_in, status_in, *groups),
                    env=env,
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException:
                for ours in (control, status, stdout, stderr, *([words] if words >= 0 else [])):
                    os.close(ours)
                raise
        transports: list[asyncio.BaseTransport] = []
        try:
            readers = [await _reader(ours, transports) for ours in (status, stdout, stderr)]
            writer = await _writer(words, transports) if words >= 0 else None
        except BaseException:
            os.close(control)  # which ends the guard and all it has started
            for transport in transports:
                transport.close()
            raise
        return cls(guard, control, readers, transports, writer)

    @property
    def pid(self) -> int:
        """Process id of the guard, below which everything that it starts stays."""
        return self._guard.pid

    async def wait(self) -> Ended:
        """Wait until the command and everything it started have ended, and tell how the command did."""
        line = (await self._status.read(MAX_STATUS_BYTES)).decode(errors="replace")
        await self._guard.wait()
        how, _, rest = line.partition("\n")[0].partition(" ")
        if how == "start":
            return Ended("start", reason=rest)
        if how == "limit":
            return Ended("limit", reason=rest)
        if how == "exit" and rest.isdigit():
            return Ended("exit", int(rest))
        if how == "signal" and rest.isdigit():
            return Ended("signal", int(rest))
        return Ended("signal", abs(self._guard.returncode or 9), "its guard was ended")

    async def leave(self, seconds: float) -> Ended | None:
        """Close its standard input, and return how it ended where it does so by itself within ``seconds``."""
        if self.stdin is not None:
            self.stdin.close()
        try:
            async with deadlines.timeout(seconds):
                return await self.wait()
        except TimeoutError:
            return None

    def stop(self) -> None:
        """Have everything killed; ``close`` waits for it."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1

    async def close(self) -> bool:
        """End whatever still runs and let go of the streams; bounded, and safe to call again.

        Returns:
            Whether everything is known to have ended. Where it is not, a kill is pending for what a dead mount holds.
        """
        self.stop()
        clean = True
        try:
            async with deadlines.timeout(KILL_SECONDS):
                await self._guard.wait()
        except TimeoutError:
            clean = False
            with contextlib.suppress(ProcessLookupError):
                self._guard.kill()
            await self._guard.wait()
        finally:
            for transport in self._transports:
                transport.close()
        return clean


async def _writer(descriptor: int, transports: list[asyncio.BaseTransport]) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    # A reader's protocol, since only that knows how to hold a writer back.
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(descriptor, "wb", buffering=0)
    )
    transports.append(transport)
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def _reader(descriptor: int, transports: list[asyncio.BaseTransport]) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    transports.append(transport)
    return reader
