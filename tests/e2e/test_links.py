"""Links that break while work is under way: to the files, and to the words (DESIGN 4.2, 4.6)."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.operation import Nothing
from support.daemons import Daemon, wait_for
from support.held_proxy import HeldProxy, held_proxy
from support.leases import ask, begin, conditions, finish, mount_of, view
from support.ports import free_port
from support.watched_leases import daemons_behind

Pair = tuple[Daemon, Daemon]
STATED_SECONDS = 15
"""What DESIGN 12 promises from the loss of a link to the error in the program."""
CUTS = 20
SLACK = 3
"""Files, threads or tasks more than before that are no leak: connections come and go."""
SILENCE_SECONDS = 30
"""A stream that is silent is noticed in 20 s."""

# Reads one open file again and again until that fails, and goes on once files can be opened again.
READER = """
import os, sys, time
source = os.open("data", os.O_RDONLY)
size = 0
open("started", "w").close()
try:
    while True:
        os.lseek(source, 0, 0)
        size = 0
        while piece := os.read(source, 65536):
            size += len(piece)
        os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
        if size != 3_000_000:
            sys.exit(f"the file ended after {size} bytes")
except OSError as error:
    said = error.strerror
while True:
    try:
        with open("result", "w") as result:
            result.write(said)
        break
    except OSError:
        time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def proxy() -> Iterator[HeldProxy]:
    with held_proxy(free_port()) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory, proxy: HeldProxy) -> Iterator[Pair]:
    with daemons_behind(proxy, tmp_path_factory.mktemp("pair")) as both:
        yield both


def kinds(daemon: Daemon, delegation: str) -> set[str]:
    return set(conditions(daemon, delegation)) - {"", "ending"}


# The words


def test_work_that_ends_while_nobody_hears_is_told_right_afterwards(
    daemons: Pair, proxy: HeldProxy, tmp_path: Path
) -> None:
    delegator, executor = daemons
    delegation = begin(delegator, tmp_path, "touch started; until test -e go; do sleep 0.1; done; echo the end")
    wait_for((tmp_path / "started").exists, 30, "the work")

    proxy.refusing = True
    proxy.cut()
    wait_for(lambda: (found := view(delegator, delegation).condition) and found.kind == "unresponsive", 20, "silence")
    (tmp_path / "go").touch()
    wait_for(lambda: executor.json("status")["assignments_active"] == 0, 20, "the end of the work")
    assert str(view(delegator, delegation).state) == "running", "nobody has heard of the end"
    proxy.refusing = False

    end = finish(delegator, delegation)
    assert str(end.state) == "completed"
    assert end.result is not None
    assert end.result.final_summary == "the end"
    assert "unresponsive" in kinds(delegator, delegation)


def test_a_stream_that_breaks_again_and_again_loses_no_end(daemons: Pair, proxy: HeldProxy, tmp_path: Path) -> None:
    delegator, _ = daemons
    delegation = begin(delegator, tmp_path, "for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done; echo the end; exit 3")
    for _ in range(4):
        time.sleep(0.4)
        proxy.cut()

    end = finish(delegator, delegation)
    assert (str(end.state), end.error and end.error.code) == ("error", "TASK_FAILED")
    assert end.result is not None
    assert end.result.exit_code == 3


def test_a_silent_executor_is_unresponsive_and_its_late_end_counts(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    delegation = begin(delegator, tmp_path, "touch started; until test -e go; do sleep 0.2; done; echo late")
    wait_for((tmp_path / "started").exists, 30, "the work")

    executor.kill(signal.SIGSTOP)
    try:
        # The lender's server misses its connection at about the same time, and may be the first to say so.
        wait_for(lambda: "unresponsive" in kinds(delegator, delegation), SILENCE_SECONDS, "word of the silence")
        condition = view(delegator, delegation).condition
        assert condition is not None
        assert condition.kind == "unresponsive"
        assert str(view(delegator, delegation).state) == "running"
        (tmp_path / "go").touch()
    finally:
        executor.kill(signal.SIGCONT)

    end = finish(delegator, delegation)
    assert str(end.state) == "completed", end.error
    assert end.result is not None
    assert end.result.final_summary == "late"
    assert "unresponsive" in kinds(delegator, delegation)
    assert executor.mounts == []


# The files


def test_a_program_that_reads_sees_an_error_and_not_the_end_of_its_file(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    (tmp_path / "data").write_bytes(bytes(3_000_000))
    (tmp_path / "reader.py").write_text(READER)
    delegation = begin(delegator, tmp_path, "exec python3 reader.py")
    wait_for((tmp_path / "started").exists, 30, "the work")

    delegator.kill(signal.SIGSTOP)
    try:
        began = time.monotonic()
        absent = mount_of(executor, delegation) / "workspace" / "absent"
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            absent.stat()
        assert time.monotonic() - began <= STATED_SECONDS
        time.sleep(max(0.0, began + STATED_SECONDS - time.monotonic()))
    finally:
        delegator.kill(signal.SIGCONT)

    end = finish(delegator, delegation)
    assert str(end.state) == "completed", end.error
    assert (tmp_path / "result").read_text() == os.strerror(errno.EIO)
    assert end.result is not None
    assert end.result.link_losses == 1
    assert "degraded" in kinds(delegator, delegation)
    assert end.audit is not None
    assert sorted(end.audit.added) == ["result", "started"]
    shown = delegator.run("output", delegation)
    assert "link to the files was lost once" in " ".join((shown.stdout + shown.stderr).split())


def connected(port: int) -> set[str]:
    """Return the ports from which connections lead to ``port`` on this machine."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, state = line.split()[1:4]
        if state == "01" and int(remote.partition(":")[2], 16) == port:
            found.add(local)
    return found


def reset(port: int) -> None:
    """Have the kernel break every connection to ``port``."""
    if not connected(port) or os.geteuid() != 0 or shutil.which("ss") is None:
        pytest.skip("connections can't be broken here")
    before = connected(port)
    subprocess.run(["ss", "-K", "sport", "=", f":{port}"], check=False, capture_output=True)
    try:
        wait_for(lambda: not connected(port) & before, 5, "the end of the connections")
    except AssertionError:
        pytest.skip("the kernel does not break connections on request")


def use(daemon: Daemon) -> tuple[int, int, int]:
    """Return how many files, threads and tasks a daemon has."""
    process = Path(f"/proc/{daemon.pid}")
    tasks = ask(daemon, lambda client: client.call(SHOW_STATUS, Nothing())).tasks
    return len(list((process / "fd").iterdir())), len(list((process / "task").iterdir())), tasks


def answers(absent: Path) -> bool:
    """Tell whether the lender says that a file is not there."""
    try:
        absent.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    raise AssertionError("a file that is not there")


@pytest.mark.timeout(120)
def test_the_mount_comes_back_however_often_its_link_is_cut(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    port = int(str(delegator.info["sftp"]).rpartition(":")[2])
    script = (
        "touch started; until test -e go 2>/dev/null; do sleep 0.1; done; until echo x > result; do sleep 0.1; done"
    )
    delegation = begin(delegator, tmp_path, script, "--ttl", "300s")
    wait_for((tmp_path / "started").exists, 30, "the work")
    workspace = mount_of(executor, delegation) / "workspace"
    used = []
    for number in range(CUTS):
        reset(port)
        wait_for(lambda number=number: answers(workspace / f"absent-{number}"), 20, f"return {number}")
        if number in (2, CUTS - 1):
            used.append([use(daemon) for daemon in daemons])
    (tmp_path / "go").touch()

    end = finish(delegator, delegation)
    assert str(end.state) == "completed", end.error
    assert end.result is not None
    assert end.result.link_losses == CUTS
    for early, late in zip(*used, strict=True):
        assert all(after - before <= SLACK for before, after in zip(early, late, strict=True)), (early, late)
    assert executor.mounts == []
    assert not connected(port)
