"""Running git: with no environment but ours, for a bounded time, and with bounded output (DESIGN 4.8, 9).

What git may be made to do by a repository's own configuration is up to whoever runs it there; nothing of the user's or
the system's settings gets to it from here.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.text import clean_line

MAX_ERROR_BYTES: Final = 64 * 1024
"""What is kept of what git complains of; it may say more."""
MAX_SAID_CHARS: Final = 300
MAX_ALLOCATION: Final = "1g"
"""The largest piece of memory that git may ask for at once: what it reads may be made so that it asks for more."""
_CHUNK: Final = 65_536


@dataclass(frozen=True, slots=True)
class GitEnded:
    """How a git process ended: its ``status``, negative where it was killed; what it printed; what it complained of.

    ``cut`` where it would have printed more than was asked for, or took longer than it had.
    """

    status: int
    output: bytes
    errors: bytes
    cut: bool
    late: bool

    def said(self) -> str:
        """Return the complaint as one line to be shown."""
        return clean_line(self.errors.decode("utf-8", "replace"), MAX_SAID_CHARS)


def nameless_beside(directory: Path) -> IO[bytes]:
    """Return an open file without a name, on the disk of git's ``directory`` and where git has no say."""
    return tempfile.TemporaryFile(dir=directory.parent)


def git_program(what_for: str, hint: str) -> str:
    """Return where git is.

    Args:
        what_for: what is said after "git is not on PATH".
        hint: what to do without it.

    Raises:
        SubletError: ``DEP_MISSING``.
    """
    git = shutil.which("git")
    if git is None:
        raise SubletError(ErrorCode.DEP_MISSING, f"git is not on PATH{what_for}", hint)
    return git


def git_environment(**more: str) -> dict[str, str]:
    """Return all of the environment that git gets, with ``more`` variables."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "HOME": "/dev/null",
        "XDG_CONFIG_HOME": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_GRAFT_FILE": "/dev/null",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOC_LIMIT": MAX_ALLOCATION,
        **more,
    }


def start_git(
    argv: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path | str,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start git in a process group of its own, which ends with it, to be handed to ``finish_git``."""
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=dict(environment),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish_git(process: subprocess.Popen[bytes], *, limit: int, seconds: float) -> GitEnded:
    """Read what a process of ``start_git`` says until it ends, and leave nothing of it behind.

    Args:
        process: the process.
        limit: bytes of output that are kept; with more it is ended. What goes to a file is not counted.
        seconds: how long it may take; then it is ended.
    """
    assert process.stderr is not None
    output, errors = bytearray(), bytearray()
    ends, late = time.monotonic() + seconds, False
    try:
        with process, selectors.DefaultSelector() as ready:
            try:
                if process.stdout is not None:
                    ready.register(process.stdout, selectors.EVENT_READ, output)
                ready.register(process.stderr, selectors.EVENT_READ, errors)
                while ready.get_map() and len(output) <= limit and not late:
                    for key, _ in ready.select(max(0.0, ends - time.monotonic())):
                        piece = os.read(key.fd, _CHUNK)
                        if not piece:
                            ready.unregister(key.fileobj)
                        elif key.data is output or len(errors) < MAX_ERROR_BYTES:
                            key.data.extend(piece)
                    late = time.monotonic() >= ends
                if len(output) <= limit and not late:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(max(0.0, ends - time.monotonic()))
                    late = process.returncode is None
            finally:
                end_git(process)
    finally:
        process.wait()
    cut = late or len(output) > limit
    return GitEnded(process.returncode, bytes(output[:limit]), bytes(errors), cut, late)


def end_git(process: subprocess.Popen[bytes]) -> None:
    """Kill git and all that it has started, where it runs still."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
