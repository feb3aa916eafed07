"""What a process holds of a fork that another process made for it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Final

CHECK_SECONDS: Final = 0.01
PIECE_BYTES: Final = 64


class Forked:
    """A fork, as ``subprocess.Popen`` has a child.

    Args:
        end: the reading end of the pipe that is told the fork's process id and, at its end, its status.
    """

    def __init__(self, end: int) -> None:
        self._end = end
        self._told = b""
        self._status: int | None = None
        while not self._told.endswith(b"\n"):
            piece = os.read(end, PIECE_BYTES)
            assert piece, "the process that forks has ended"
            self._told += piece
        self.pid = int(self._told.split()[0])
        os.set_blocking(end, False)

    def poll(self) -> int | None:
        """Return the status with which it ended; None while it runs."""
        while self._status is None:
            try:
                piece = os.read(self._end, PIECE_BYTES)
            except BlockingIOError:
                return None
            self._told += piece
            if not piece:
                lines = self._told.split()
                self._status = int(lines[1]) if len(lines) > 1 else -signal.SIGKILL
                os.close(self._end)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, ``timeout`` seconds at most, and return its status."""
        give_up = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if give_up is not None and time.monotonic() > give_up:
                raise subprocess.TimeoutExpired("sublet", timeout or 0)
            time.sleep(CHECK_SECONDS)
        return status

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
