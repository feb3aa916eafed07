"""Limits of the executor's agent as the lender sees them, and a lender that requires what is enforced."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import SHELL_AGENT, Daemon, two_daemons, wait_for

MIB = 1 << 20
AGENT = {
    **SHELL_AGENT,
    "limits": {
        "memory_bytes": 96 * MIB,
        "processes": 40,
        "cpu_seconds": 2,
        "output_bytes": 2 * MIB,
        "scratch_bytes": 8 * MIB,
    },
}
EVERYTHING = "cwd_only,allow_network,memory,processes,cpu_time,output,scratch"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("lim"), agent=AGENT) as pair:
        yield pair


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "PATH=/usr/bin:/bin python3 -c 'x = [bytearray(4 << 20) for _ in range(99)]; import time; time.sleep(9)'",
            "used more than 96 MiB of memory",
        ),
        ("bomb() { bomb | bomb & }; bomb 2>/dev/null; wait; sleep 9", "ran more than 40 processes at once"),
        ("while :; do :; done & while :; do :; done", "used more than 2 s of processor time"),
        ("yes", "printed more than 2 MiB"),
        ("head -c 20000000 /dev/zero >$HOME/x; sleep 9", "filled more than 8 MiB of temporary space"),
    ],
    ids=["memory", "processes", "cpu_time", "output", "scratch"],
)
def test_who_meets_a_limit_is_ended_and_the_lender_is_told_which(
    daemons: tuple[Daemon, Daemon], tmp_path: Path, script: str, why: str
) -> None:
    delegator, executor = daemons
    script = f"echo begun; echo kept >file; {script}"
    ended = delegator.json("delegate", str(tmp_path), "--to", "bob", script, check=(1,))
    assert ended["state"] == "error"
    assert ended["error"]["code"] == "TASK_FAILED"
    assert ended["error"]["message"] == f"bob: the agent {why} and was ended"
    if "yes" in script:
        assert ended["result"]["final_summary"].endswith("y\ny")
    else:
        assert ended["result"]["final_summary"].startswith("begun")
    assert ended["audit"]["added"] == ["file"]
    assert executor.json("status")["assignments_active"] == 0


def test_a_lender_that_requires_what_is_enforced_is_served_and_told(
    daemons: tuple[Daemon, Daemon], tmp_path: Path
) -> None:
    delegator, executor = daemons
    ended = delegator.json("delegate", str(tmp_path), "--to", "bob", "true", "--require-sandbox", EVERYTHING)
    assert ended["state"] == "completed"
    assert ended["sandbox_enforced"] == sorted(EVERYTHING.split(",")) == executor.json("status")["enforced"]


def test_an_executor_without_a_sandbox_declines_and_says_what_it_lacks(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    policy = {"version": 1, "limits": {"require_enforced": ["cwd_only"]}}
    agent = {**SHELL_AGENT, "limits": {"cpu_seconds": None}}
    with two_daemons(tmp_path, agent=agent, policy=policy, options=["--unsandboxed"]) as (delegator, _):
        for more, missing in (
            ((), "cwd_only"),
            (("--require-sandbox", "memory,cpu_time"), "cpu_time, cwd_only"),
        ):
            ended = delegator.json("delegate", str(project), "--to", "bob", "touch x", *more, check=(5,))
            assert ended["error"]["code"] == "DECLINED"
            assert ended["error"]["message"] == f"bob: what the delegator requires is not enforced here: {missing}"
            assert ended["error"]["hint"] == "Enforced for agent shell: memory, output, processes, scratch."
            assert ended["expires_at"] is None, "no access was ever given"
        assert list(project.iterdir()) == []


def test_groups_that_a_killed_executor_left_are_removed_by_its_next_start(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with two_daemons(tmp_path) as (delegator, executor):
        if "cgroup" not in executor.json("status")["limits"]:
            pytest.skip("no control group can be made here")
        started = delegator.json("delegate", str(project), "--to", "bob", "touch here; sleep 600", "--background")
        wait_for(lambda: (project / "here").exists(), what="the work's begin")
        found = groups_of(started["delegation_id"])
        assert found
        executor.kill()
        executor.up(agent=SHELL_AGENT)
        assert groups_of(started["delegation_id"]) == []
        executor.down()
        assert not any(path.parent.exists() for path in found)


def groups_of(task: str) -> list[Path]:
    """Return the control groups of one task, wherever the machine has them mounted."""
    mounts = re.findall(r"^\S+ (\S+) cgroup2? ", Path("/proc/mounts").read_text(), re.MULTILINE)
    found = [
        Path(line)
        for mount in mounts
        for line in subprocess.run(
            ["find", mount, "-type", "d", "-name", task], capture_output=True, text=True, check=False
        ).stdout.split()
    ]
    return [path for path in found if os.path.isdir(path)]
