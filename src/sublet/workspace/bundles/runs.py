"""The git processes of one transfer, which end with it at once, whoever ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Final

GIT_SECONDS: Final = 600.0
"""Of one run of git."""


class Halted(Exception):
    """What git was needed for is over."""


class GitRuns:
    """Runs git, in threads, until ``halt``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._halted = False
        self._running: set[int] = set()

    def halt(self) -> None:
        """Kill what runs, with all that it has started, and run nothing more. Idempotent, from any thread."""
        with self._lock:
            self._halted = True
            for group in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)

    def check(self) -> None:
        """Return where nothing was halted.

        Raises:
            Halted: ``halt`` was called.
        """
        if self._halted:
            raise Halted

    def run(
        self, argv: Sequence[str], environment: Mapping[str, str], stdin: IO[bytes] | None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one command in ``/`` and return how it ended, and what it said.

        Args:
            argv: the command.
            environment: all of its environment.
            stdin: a file to read from; nothing where that is None.

        Raises:
            Halted: it was killed by ``halt``, or not begun.
            subprocess.TimeoutExpired: after ``GIT_SECONDS``; it is killed.
        """
        with self._lock:
            self.check()
            process = subprocess.Popen(
                argv,
                cwd="/",
                env=dict(environment),
                stdin=stdin or subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # what git starts is in its group, and ends with it
            )
            self._running.add(process.pid)
        with process:
            try:
                out, err = process.communicate(timeout=GIT_SECONDS)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
            finally:
                with self._lock:
                    self._running.discard(process.pid)
        self.check()
        return subprocess.CompletedProcess(argv, process.returncode, out, err)
