"""Runs work in forks, a few at a time, each with a bound on its time and with a scratch directory of its own."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MEMORY: Final = 8 << 30
"""Bytes of addresses that a fork may have: a mutant that grows without end is stopped."""
LOOK_SECONDS: Final = 0.003
ASK_SECONDS: Final = 4.0
"""How often a fork is asked whether it gets on: the machine is shared, and one that runs has its bound of time."""
TIMED_OUT: Final = -1


@dataclass(frozen=True)
class Job:
    """Work for one fork."""

    key: int
    work: Callable[[], int]
    seconds: float
    """Of processor time, at most."""


@dataclass
class _Running:
    job: Job
    scratch: str
    until: float
    ticks: int = -1

    def stands(self, pid: int) -> bool:
        """Tell whether the fork waits, and has not got on since it was asked last."""
        if time.monotonic() <= self.until:
            return False
        before = self.ticks
        waits, self.ticks = _look_at(pid)
        self.until = time.monotonic() + ASK_SECONDS
        return waits and self.ticks <= before


def run_forked(jobs: Iterable[Job], workers: int, deadline: float) -> Iterator[tuple[int, int]]:
    """Run jobs and return each one's key and exit code as it ends.

    Args:
        jobs: what to run; they are taken as there is room.
        workers: how many run at a time.
        deadline: by the monotonic clock; no job is begun after it.
    """
    left, running = iter(jobs), dict[int, _Running]()
    while True:
        while len(running) < workers and time.monotonic() < deadline:
            job = next(left, None)
            if job is None:
                break
            scratch = tempfile.mkdtemp(prefix="m")
            running[_begin(job, scratch)] = _Running(job, scratch, time.monotonic() + ASK_SECONDS)
        if not running:
            return
        yield from _ended(running)


def _begin(job: Job, scratch: str) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    with contextlib.suppress(BaseException):
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        seconds = int(job.seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.environ["PYTEST_DEBUG_TEMPROOT"] = os.environ["TMPDIR"] = tempfile.tempdir = scratch
        code = job.work()
    os._exit(code)


def _look_at(session: int) -> tuple[bool, int]:
    """Tell whether all processes of a session wait, and how much processor time they have had."""
    states, ticks = set[str](), 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                states.add(fields[0])
                ticks += int(fields[11]) + int(fields[12])
    # One that has just begun is of no session yet.
    return bool(states) and states <= {"S", "Z"}, ticks


def _ended(running: dict[int, _Running]) -> Iterator[tuple[int, int]]:
    time.sleep(LOOK_SECONDS)
    for pid, one in list(running.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended and one.stands(pid):
            os.killpg(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, 0)
        if ended:
            del running[pid]
            # What the fork started is of its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            shutil.rmtree(one.scratch, ignore_errors=True)
            yield one.job.key, os.WEXITSTATUS(status) if os.WIFEXITED(status) else TIMED_OUT
