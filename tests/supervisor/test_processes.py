"""An agent is known by its processes, whatever they do to look like somebody else's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sublet.supervisor.guarded_process import NO_INPUT, GuardedProcess
from sublet.supervisor.processes import ProcessOwners, RunningAgent
from support.jobs import command, job

pytestmark = pytest.mark.anyio
ORPHAN = "(setsid sh -c 'echo $$ >pid; exec sleep 60' &); until [ -s pid ]; do sleep 0.01; done; cat pid; exec sleep 60"


async def test_an_orphan_in_a_session_of_its_own_is_still_the_agents(tmp_path: Path) -> None:
    owners = ProcessOwners()
    process = await GuardedProcess.start(["sh", "-c", ORPHAN], {"PATH": os.environ["PATH"]}, tmp_path, NO_INPUT)
    try:
        async with asyncio.timeout(20):
            pid = int(await process.stdout.readline())
        # Before it is told of, and after, it is nobody's to talk with.
        with pytest.raises(ProcessLookupError):
            owners.owner(pid)
        work = job(tmp_path, "x")
        with owners.of(command())(process.pid, work):
            found = owners.owner(pid)
            assert found is not None
            assert (found.agent_id, found.job) == ("test", work)
            assert owners.of_job(work.delegation_id, "test") is found
            assert owners.of_job(work.delegation_id, "other") is None
            assert found.chain("node-x").execution_chain == ("test@node-x",)
        with pytest.raises(ProcessLookupError):
            owners.owner(pid)
    finally:
        await process.close()


def test_other_processes_are_nobodys_and_those_gone_are_unknown() -> None:
    owners = ProcessOwners()
    assert owners.owner(os.getpid()) is None
    assert owners.owner(0) is None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert owners.owner(child.pid) is None
        child.communicate(b"\n")
    with pytest.raises(ProcessLookupError):
        owners.owner(child.pid)


def test_what_an_agent_calls_ends_with_its_job(tmp_path: Path) -> None:
    running = RunningAgent("test", "executor", job(tmp_path, "x", seconds=30))
    chain = running.chain("node-x")
    assert chain.ttl is not None
    assert 29 < chain.ttl <= 30
    late = RunningAgent("test", "executor", job(tmp_path, "x", seconds=30), began=running.began - 100)
    assert late.chain("node-x").ttl == 0
