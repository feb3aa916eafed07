"""Control groups, the kernel's own where this user may make some, and a play of version 2 where not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from sublet.protocol.names import parse_name
from sublet.workspace.sandbox.cgroups import Cgroups

NAME = f"sublet-test-groups-{os.getpid()}"


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    cgroups = Cgroups(NAME)
    if not cgroups.items:
        pytest.skip("no control group can be made here")
    yield cgroups
    cgroups.reap()
    cgroups.close()


def join(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.write(descriptor, b"0")


def places() -> list[Path]:
    found = [Path(line.split()[1]) for line in Path("/proc/mounts").read_text().splitlines() if " cgroup" in line]
    return [path for mount in found for path in mount.glob(f"**/{NAME}")]


def own_groups() -> str:
    return Path("/proc/self/cgroup").read_text()


def test_a_group_holds_what_came_in_and_what_that_started_and_its_end_ends_them(cgroups: Cgroups) -> None:
    group = cgroups.open(parse_name("one"), memory_bytes=64 << 20, processes=20, cpu_seconds=10)
    before = own_groups()
    process = subprocess.Popen(
        ["sh", "-c", "setsid sleep 600 & cat /proc/self/cgroup; wait"],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: join(group.descriptors),
    )
    assert process.stdout is not None
    inside = b"".join(process.stdout.readline() for _ in before.splitlines()).decode()
    assert inside.count(f"/{NAME}/one") >= 1
    assert group.exceeded() is None
    group.close()
    assert process.wait(10) == -9
    process.stdout.close()
    group.close()
    assert own_groups() == before
    assert cgroups.reap() == 0
    assert places() == [], "an idle daemon has no directory"


def test_what_a_killed_daemon_left_is_ended_by_the_next(cgroups: Cgroups) -> None:
    group = cgroups.open(parse_name("left"), memory_bytes=64 << 20, processes=20, cpu_seconds=10)
    process = subprocess.Popen(["sleep", "600"], preexec_fn=lambda: join(group.descriptors))
    assert Cgroups(NAME).reap() == 1
    assert process.wait(10) == -9
    assert Cgroups(NAME).reap() == 0
    group.close()


def fake_v2(root: Path, controllers: str) -> Path:
    """Lay out what the kernel shows of a delegated group, and return what it tells of this process."""
    proc, own = root / "proc", root / "fs" / "user" / "svc"
    proc.mkdir()
    own.mkdir(parents=True)
    (proc / "cgroup").write_text("0::/user/svc\n")
    (proc / "mountinfo").write_text(f"30 20 0:26 / {root}/fs rw,nosuid - cgroup2 cgroup2 rw\n")
    (own / "cgroup.subtree_control").write_text(controllers)
    (own / "cgroup.procs").write_text("")
    for directory in (own / "sublet-x", own / "sublet-x" / "job"):
        directory.mkdir()
        for name in ("cgroup.procs", "cgroup.subtree_control", "memory.max", "memory.swap.max", "pids.max"):
            (directory / name).write_text("")
        (directory / "cpu.stat").write_text("usage_usec 0\n")
    return proc


def test_version_2_is_used_where_its_controllers_are_free(tmp_path: Path) -> None:
    proc = fake_v2(tmp_path, "memory pids")
    cgroups = Cgroups("sublet-x", proc)
    assert (sorted(cgroups.items), cgroups.version) == (["cpu_time", "memory", "processes"], "cgroup v2")
    job = tmp_path / "fs" / "user" / "svc" / "sublet-x" / "job"
    group = cgroups.open(parse_name("job"), memory_bytes=1 << 30, processes=7, cpu_seconds=3)
    for descriptor in group.descriptors:
        os.close(descriptor)
    group.descriptors.clear()
    found = [(job / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")]
    assert found == [str(1 << 30), "0", "7"]
    assert group.exceeded() is None
    (job / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n")
    assert group.exceeded() == "memory"
    (job / "memory.events").write_text("oom_kill 0\n")
    (job / "pids.events").write_text("max 1\n")
    assert group.exceeded() == "processes"
    (job / "pids.events").unlink()
    (job / "cpu.stat").write_text("usage_usec 3000001\nuser_usec 1\n")
    assert group.exceeded() == "cpu_time"


def test_a_group_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text("0::/user\n")
    (proc / "mountinfo").write_text(f"30 20 0:26 / {tmp_path}/none rw - cgroup2 cgroup2 rw\n")
    assert Cgroups("sublet-x", proc).items == frozenset()
    assert Cgroups("sublet-x", tmp_path / "nothing").items == frozenset()


@pytest.mark.parametrize("depth", [3, 200])
def test_groups_that_an_agent_has_nested_go_too(cgroups: Cgroups, depth: int) -> None:
    group = cgroups.open(parse_name("nested"), memory_bytes=64 << 20, processes=20, cpu_seconds=10)
    top = next(path for path in places() if (path / "nested").is_dir()) / "nested"
    made = [top.joinpath(*["deeper"] * number) for number in range(1, depth + 1)] + [top / "beside"]
    for path in made:
        path.mkdir()
    processes = []
    for place in (made[0], made[-1]):
        procs = os.open(place / "cgroup.procs", os.O_WRONLY)
        processes.append(subprocess.Popen(["sleep", "600"], preexec_fn=partial(join, [procs])))
        os.close(procs)
    group.close()
    assert not top.exists()
    assert [process.wait(10) for process in processes] == [-9, -9]
    cgroups.close()
    assert places() == []
