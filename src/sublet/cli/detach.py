"""Starting the daemon in the background: a session of its own, a private log, and no return before it is ready."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sublet.cli.connection import Connect
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.daemon.models import StatusView
    from sublet.daemon.paths import Home

START_SECONDS = 20.0
POLL_SECONDS = 0.02
STOP_SECONDS = 5.0
LOG_NAME = "daemon.log"
MAX_LOG_BYTES = 16 << 20
"""A log that has grown beyond this is put aside at the next start, over the one put aside before."""
MAX_REPORT_BYTES = 16 << 10
_CALLERS_ALONE = {"PWD", "OLDPWD", "SHLVL", "_"}
"""Environment variables that say where the caller was, which is no business of the daemon's."""


def log_path(home: Home) -> str:
    """Return where a detached daemon writes its log."""
    return f"{home.state_dir}/{LOG_NAME}"


async def start(arguments: Sequence[str], home: Home, connect: Connect) -> StatusView:
    """Start ``sublet up`` with ``arguments`` in the background and return its status once it is ready to work.

    Args:
        arguments: options of ``up``, with absolute paths.
        home: its directories.
        connect: how its control socket is reached.

    Raises:
        SubletError: ``ALREADY_RUNNING``, or whatever the daemon itself failed with, or ``DAEMON_UNAVAILABLE`` where
            it is not ready within ``START_SECONDS``; nothing of it is left running then.
    """
    home.make()
    reader, writer = os.pipe()
    try:
        process = _spawn(arguments, home, writer)
    finally:
        os.close(writer)
    try:
        return await _ready(process, home, connect, reader)
    except BaseException:
        _end(process)
        raise
    finally:
        os.close(reader)


def report(descriptor: int, error: SubletError) -> None:
    """Tell whoever started this daemon in the background why it did not come up."""
    body = json.dumps({"code": str(error.code), "message": error.message, "hint": error.hint})
    try:
        os.write(descriptor, body.encode()[:MAX_REPORT_BYTES])
    except OSError:
        return  # nobody listens any more; the error is in the log as well


def _spawn(arguments: Sequence[str], home: Home, writer: int) -> subprocess.Popen[bytes]:
    log = _open_log(log_path(home))
    environment: Mapping[str, str] = {k: v for k, v in os.environ.items() if k not in _CALLERS_ALONE}
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "sublet", "up", f"--report-fd={writer}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=environment,
            pass_fds=(writer,),
            start_new_session=True,
        )
    finally:
        os.close(log)


def _open_log(path: str) -> int:
    try:
        if os.stat(path).st_size > MAX_LOG_BYTES:
            os.replace(path, f"{path}.1")
    except FileNotFoundError:
        pass
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


async def _ready(process: subprocess.Popen[bytes], home: Home, connect: Connect, reader: int) -> StatusView:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        if process.poll() is not None:
            raise _failed(process.returncode, os.read(reader, MAX_REPORT_BYTES), home)
        try:
            async with connect() as control:
                status = await control.status()
        except SubletError as error:
            if error.code != LocalCode.DAEMON_UNAVAILABLE:
                raise
        else:
            # another daemon may answer while ours is about to find that it came second
            if status.pid == process.pid:
                return status
        await asyncio.sleep(POLL_SECONDS)
    raise SubletError(
        LocalCode.DAEMON_UNAVAILABLE,
        f"the daemon was not ready within {START_SECONDS:.0f} s, so it was stopped",
        f"Its log may say why: {log_path(home)}",
    )


def _failed(status: int, raw: bytes, home: Home) -> SubletError:
    """Return the daemon's own last error, or what little is known of its end."""
    try:
        told = json.loads(raw)
        code = _code(told["code"])
        return SubletError(code, str(told["message"]), str(told["hint"]))
    except (ValueError, KeyError, TypeError):
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return SubletError(
            LocalCode.DAEMON_UNAVAILABLE,
            f"the daemon ended before it was ready ({how})",
            f"Its log says more: {log_path(home)}",
        )


def _code(text: str) -> ErrorCode | LocalCode:
    return ErrorCode(text) if text in ErrorCode.__members__ else LocalCode(text)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave no half-started daemon behind."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
