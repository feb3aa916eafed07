"""The git processes of one transfer, which end with it at once, whoever ends it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from sublet.workspace.git_runner import GitEnded, end_git, finish_git, git_environment, start_git
from sublet.workspace.sandbox.git_sandbox import GitSandbox, git_variables

GIT_SECONDS: Final = 600.0
"""Of one run of git."""


class Halted(Exception):
    """What git was needed for is over."""


class GitRuns:
    """Runs git, in threads, until ``halt``.

    Args:
        sandbox: what git runs in.
    """

    def __init__(self, sandbox: GitSandbox) -> None:
        self._sandbox = sandbox
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

    def script(
        self,
        script: str,
        arguments: Sequence[str],
        stdin: IO[bytes] | None,
        *,
        writable: Sequence[Path],
        readable: Sequence[Path] = (),
        git_dir: Path,
        limit: int = 0,
        stdout: IO[bytes] | None = None,
    ) -> GitEnded:
        """Run a script of ours in the sandbox and return how it ended.

        Args:
            script: as ``GitSandbox.wrap`` takes it, and so ``arguments``, ``writable`` and ``readable``.
            arguments: what varies of it.
            stdin: as ``run``, and so ``limit`` and ``stdout``.
            writable: what git may change.
            readable: what it may read besides.
            git_dir: the repository.
            limit: bytes of output that are kept.
            stdout: a file for the output instead.

        Raises:
            SubletError: ``DEP_MISSING`` without git or its sandbox.
            Halted: as ``run``.
        """
        argv = self._sandbox.wrap(script, arguments, writable=writable, readable=readable)
        environment = git_environment(GIT_DIR=str(git_dir), TMPDIR=str(writable[0]), **git_variables())
        return self.run(argv, environment, stdin, limit=limit, stdout=stdout)

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
