"""A command under its guard: starts it, tells how it ended, and ends all of it when asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sublet import deadlines
from sublet.stop_time import within

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


class ReadyGuard:
    """A guard that was started ahead and waits for its command. Made by ``start``; ``close`` it always."""

    def __init__(self, guard: asyncio.subprocess.Process, control: int) -> None:
        self._guard = guard
        self._control = control

    @classmethod
    async def start(cls) -> ReadyGuard | None:
        """Start a guard; None where that fails: it is then started with its command, and its failure told."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                guard = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", str(GUARD), str(theirs.fileno())),
                    stdin=NO_INPUT,
                    stdout=NO_INPUT,
                    stderr=NO_INPUT,
                    pass_fds=(theirs.fileno(),),
                    env={"PATH": os.defpath},
                    cwd="/",
                    start_new_session=True,
                )
        except OSError:
            ours.close()
            return None
        except BaseException:
            ours.close()
            raise
        return cls(guard, ours.detach())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._guard.pid

    def take(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        bounds: Sequence[str],
        descriptors: Sequence[int],
    ) -> tuple[asyncio.subprocess.Process, int] | None:
        """Let it run a command, and return it with what ends it; None where it was taken or has ended.

        Args:
            argv: the command.
            env: exactly its environment.
            cwd: where it starts.
            bounds: what is to be watched, as ``guard.py`` reads it.
            descriptors: for the status, the three standard streams, and the control groups; they stay the caller's.
        """
        if self._control < 0 or self._guard.returncode is not None:
            return None
        settings = [os.fsencode(name) + b"=" + os.fsencode(value) for name, value in env.items()]
        texts = [str(cwd), ",".join(bounds), str(len(argv)), *argv]
        file = os.memfd_create("guard", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(file), "wb") as written:
                written.write(b"\0".join([*map(os.fsencode, texts), *settings]))
            with socket.socket(fileno=os.dup(self._control)) as channel:
                socket.send_fds(channel, [b"\0"], [file, *descriptors])
        except OSError:
            return None
        finally:
            os.close(file)
        control, self._control = self._control, -1
        return self._guard, control

    async def close(self) -> None:
        """End it, unless it was taken."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
            await self._guard.wait()


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
        ready: ReadyGuard | None = None,
    ) -> GuardedProcess:
        """Start a command under its guard.

        Only the guard enters ``cwd``, so this returns at once even when that is on a dead mount.

        Args:
            argv: the command.
            env: its environment, to which nothing is added but UTF-8 where it has the encoding of the locale ``C``.
            cwd: where it starts.
            stdin: descriptor of its standard input, which stays the caller's, or ``NO_INPUT``; None to write to it, by
                ``stdin``. Never a path: what the agent has put there could keep us waiting.
            groups: descriptors of control groups that it goes into.
            watched: limits that the guard holds it to: ``memory`` in bytes, ``processes``, ``cpu_time`` in seconds.
            ready: a guard that was started ahead, which is used where nobody has taken it.

        Raises:
            OSError: the guard can't be started.
        """
        env = _with_encoding(env)
        with contextlib.ExitStack() as opened:
            words = -1
            if stdin is None:
                theirs_in, words = os.pipe()
            elif stdin == NO_INPUT:
                theirs_in = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            else:
                theirs_in = os.dup(stdin)
            opened.callback(os.close, theirs_in)
            ends = [os.pipe() for _ in range(3)]
            (status, status_in), (stdout, stdout_in), (stderr, stderr_in) = ends
            for theirs in (status_in, stdout_in, stderr_in):
                opened.callback(os.close, theirs)
            bounds = [f"{name}={value}" for name, value in (watched or {}).items()]
            streams = (theirs_in, stdout_in, stderr_in)
            try:
                taken = ready and ready.take(argv, env, cwd, bounds, (status_in, *streams, *groups))
                guard, control = taken or await _started(argv, env, cwd, bounds, status_in, streams, groups)
            except BaseException:
                for ours in (status, stdout, stderr, *([words] if words >= 0 else [])):
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
            async with deadlines.timeout(within(KILL_SECONDS)):
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


def _with_encoding(env: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment as Python changes its own at the start, which a guard that was started ahead did before.

    See PEP 538: names of files in the workspace are hardly ever ASCII alone.
    """
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or "C"
    return env if env.get("LC_ALL") or locale not in ("C", "POSIX") else {**env, "LC_CTYPE": "C.UTF-8"}


async def _started(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    bounds: Sequence[str],
    status: int,
    streams: tuple[int, int, int],
    groups: Sequence[int],
) -> tuple[asyncio.subprocess.Process, int]:
    """Start a guard with its command, and return it with what ends it."""
    theirs, ours = os.pipe()
    try:
        joined = [f"join={group}" for group in groups]
        guard = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(GUARD), str(theirs), str(status), str(cwd)),
            *(",".join([*joined, *bounds]), *argv),
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            pass_fds=(theirs, status, *groups),
            env=env,
            cwd="/",
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return guard, ours


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
