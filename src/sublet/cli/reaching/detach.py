"""Starting the daemon in the background: a session of its own, a private log, and no return before it is ready."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sublet.cli.reaching.start_report import REPORT, log_path
from sublet.daemon.logs.log_file import MAX_LOG_BYTES
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.daemon.api.daemon import StatusView
    from sublet.daemon.config.paths import Home

START_SECONDS = 20.0
STOP_SECONDS = 5.0
MAX_REPORT_BYTES = 64 << 10
_CALLERS_ALONE = {"PWD", "OLDPWD", "SHLVL", "_"}
"""Environment variables that say where the caller was, which is no business of the daemon's."""


def start(arguments: Sequence[str], home: Home) -> StatusView:
    """Start ``sublet up`` with ``arguments`` in the background and return its status once it is ready to work.

    Args:
        arguments: options of ``up``, with absolute paths.
        home: its directories.

    Raises:
        SubletError: ``ALREADY_RUNNING``, or whatever the daemon itself failed with, or ``DAEMON_UNAVAILABLE`` where
            it is not ready within ``START_SECONDS``; nothing of it is left running then.
    """
    home.make()
    reader, writer = os.pipe()
    with open(reader, "rb") as report:
        try:
            process = _spawn(arguments, home, writer)
        finally:
            os.close(writer)
        try:
            return _outcome(process, _read_line(report.fileno()), home)
        except BaseException:
            _end(process)
            raise


def _spawn(arguments: Sequence[str], home: Home, writer: int) -> subprocess.Popen[bytes]:
    log = _open_log(log_path(home))
    environment: Mapping[str, str] = {k: v for k, v in os.environ.items() if k not in _CALLERS_ALONE}
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "sublet", "up", f"{REPORT}={writer}", *arguments],
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


def _read_line(reader: int) -> bytes | None:
    """Return what the daemon tells of its start, empty where it ended without a word, None where time ran out."""
    give_up = time.monotonic() + START_SECONDS
    waiting = select.poll()
    waiting.register(reader, select.POLLIN)
    told = b""
    while not told.endswith(b"\n") and len(told) < MAX_REPORT_BYTES:
        left = give_up - time.monotonic()
        if left <= 0 or not waiting.poll(left * 1000):
            return None
        piece = os.read(reader, MAX_REPORT_BYTES)
        if not piece:
            break
        told += piece
    return told


def _outcome(process: subprocess.Popen[bytes], told: bytes | None, home: Home) -> StatusView:
    from sublet.daemon.api.daemon import StatusView

    if told is None:
        raise SubletError(
            LocalCode.DAEMON_UNAVAILABLE,
            f"the daemon was not ready within {START_SECONDS:.0f} s, so it was stopped",
            f"Its log may say why: {log_path(home)}",
        )
    if not told:
        status = process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        raise SubletError(
            LocalCode.DAEMON_UNAVAILABLE,
            f"the daemon ended before it was ready ({how})",
            f"Its log says more: {log_path(home)}",
        )
    body = json.loads(told)
    if "error" in body:
        raise SubletError.from_json(body["error"])
    return StatusView.model_validate(body["status"])


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
