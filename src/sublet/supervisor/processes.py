"""Which processes are those of an agent that runs here, so that none of them can pass for the owner of this daemon.

What a sandbox or a guard has started stays below it: the guard is a reaper of its own (``PR_SET_CHILD_SUBREAPER``), so
that a process whose parent has ended moves up to the guard and no further.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sublet.protocol.chain import Chain, address
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.guarded_process import GUARD
from sublet.supervisor.job import Job

MAX_ANCESTORS: Final = 128
"""Of a process that lies deeper none can tell whose it is: each connection looks through all, and agents nest them."""
MAX_STAT_BYTES: Final = 1024
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """An agent at work, by its id and role, and the job that it works on."""

    agent_id: str
    role: str
    job: Job
    began: float = field(default_factory=time.monotonic)

    def chain(self, node_id: str) -> Chain:
        """Return the chain of what the agent calls now: its own calls never outlive its job."""
        job = self.job
        rest = job.remaining_seconds - (time.monotonic() - self.began)
        if job.deadline is not None:
            rest = job.deadline.at - asyncio.get_running_loop().time()
        return job.chain.called_by(address(self.agent_id, node_id), lease_id=job.delegation_id, ttl=max(0.0, rest))


Own = Callable[[int, Job], AbstractContextManager[None]]
"""Holds a process, by its pid, for that of an agent which works on a job, while the block runs."""


class ProcessOwners:
    """Knows the first process of each agent that runs; whoever starts one says so."""

    def __init__(self) -> None:
        self._running: dict[int, RunningAgent] = {}

    @contextmanager
    def running(self, pid: int, agent: RunningAgent) -> Iterator[None]:
        """Note that ``pid``, and whatever it starts, belongs to ``agent`` while the block runs."""
        self._running[pid] = agent
        try:
            yield
        finally:
            self._running.pop(pid, None)

    def of(self, config: AgentConfig) -> Own:
        """Return what holds processes for those of one agent."""
        return lambda pid, job: self.running(pid, RunningAgent(config.id, config.role, job))

    def of_job(self, job_id: str, agent_id: str) -> RunningAgent | None:
        """Return an agent that works on a job, where others may work on it as well; None where it does not any more."""
        working = (one for one in self._running.values() if one.agent_id == agent_id)
        return next((one for one in working if one.job.delegation_id == job_id), None)

    def owner(self, pid: int) -> RunningAgent | None:
        """Return the agent to which a process belongs, or None where it is none's.

        Raises:
            ProcessLookupError: nobody can tell: it is gone, or it is an agent's that is not at work yet or any more.
        """
        for _ in range(MAX_ANCESTORS):
            if pid in self._running:
                return self._running[pid]
            if pid <= 1:
                return None
            parent = _parent(pid)
            if parent == os.getpid() and _is_guard(pid):
                raise ProcessLookupError(pid)  # an agent that has just begun, or is being ended
            pid = parent
        raise ProcessLookupError(pid)


def _parent(pid: int) -> int:
    """Return the parent of a process.

    Raises:
        ProcessLookupError: it is gone.
    """
    try:
        # Not by pathlib, which takes several times as long.
        file = os.open(f"{_PROC}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            raw = os.read(file, MAX_STAT_BYTES)
        finally:
            os.close(file)
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    # The name stands in brackets and may hold anything, brackets too.
    return int(raw.rpartition(b")")[2].split()[1])


def _is_guard(pid: int) -> bool:
    """Tell whether a process is the guard of an agent, which nothing that it guards can be taken for."""
    try:
        return str(GUARD).encode() in (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
