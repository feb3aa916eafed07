"""The git processes of one transfer, which end with it at once, whoever ends it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Final

from sublet.workspace.git_runner import GitEnded, end_git, finish_git, start_git

GIT_SECONDS: Final = 600.0
"""Of one run of git."""


class Halted(Exception):
    """What git was needed for is over."""


class GitRuns:
    """Runs git, in threads, until ``halt``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._halted = False
        self._running: set[subprocess.Popen[bytes]] = set()

    def halt(self) -> None:
        """Kill what runs, with all that it has started, and run nothing more. Idempotent, from any thread."""
        with self._lock:
            self._halted = True
            for process in self._running:
                end_git(process)

    def check(self) -> None:
        """Return where nothing was halted.

        Raises:
            Halted: ``halt`` was called.
        """
        if self._halted:
            raise Halted

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        stdin: IO[bytes] | None,
        *,
        limit: int = 0,
        stdout: IO[bytes] | None = None,
    ) -> GitEnded:
        """Run one command in ``/`` and return how it ended, and what it said.

        Args:
            argv: the command.
            environment: all of its environment.
            stdin: a file to read from; nothing where that is None.
            limit: bytes of output that are kept; with more it is ended.
            stdout: a file for the output instead.

        Raises:
            Halted: it was killed by ``halt``, or not begun.
        """
        with self._lock:
            self.check()
            process = start_git(argv, environment, "/", stdin or subprocess.DEVNULL, stdout or subprocess.PIPE)
            self._running.add(process)
        try:
            ended = finish_git(process, limit=limit, seconds=GIT_SECONDS)
        finally:
            with self._lock:
                self._running.discard(process)
        self.check()
        return ended
