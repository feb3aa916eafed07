"""A guard that was started ahead runs its command exactly as one that is started with it."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from sublet.supervisor.guarded_process import NO_INPUT, Ended, GuardedProcess, ReadyGuard

pytestmark = pytest.mark.anyio
SECONDS = 30
ODD = os.fsdecode(b"a\xff\n=b")


async def ready_guard() -> ReadyGuard:
    """Start a guard ahead."""
    guard = await ReadyGuard.start()
    assert guard is not None
    return guard


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_command_gets_its_arguments_environment_directory_and_input(tmp_path: Path, *, ahead: bool) -> None:
    ready = await ready_guard() if ahead else None
    (tmp_path / "input").write_text("from a file\n")
    script = 'printf "%s|" "$@"; pwd; cat; env -0 | sort -z; echo oops >&2; exit 7'
    env = {"PATH": os.environ["PATH"], "ODD": ODD, "EMPTY": ""}
    with (tmp_path / "input").open() as file:
        argv = ["sh", "-c", script, "sh", "", ODD, "last"]
        process = await GuardedProcess.start(argv, env, tmp_path, file.fileno(), ready=ready)
        assert (ready is not None and process.pid == ready.pid) is ahead
        try:
            async with asyncio.timeout(SECONDS):
                printed, complained = await process.stdout.read(), await process.stderr.read()
                assert await process.wait() == Ended("exit", 7)
        finally:
            assert await process.close()
            if ready is not None:
                await ready.close()
    head, _, rest = printed.partition(b"from a file\n")
    assert head == b"|" + os.fsencode(ODD) + b"|last|" + os.fsencode(tmp_path) + b"\n"
    told = dict(one.split(b"=", 1) for one in rest.split(b"\0") if one)
    assert {name: told.pop(name) for name in (b"EMPTY", b"ODD")} == {b"EMPTY": b"", b"ODD": os.fsencode(ODD)}
    assert told.keys() <= {b"PATH", b"PWD", b"OLDPWD", b"_", b"SHLVL", b"LC_CTYPE"}
    assert told[b"LC_CTYPE"] == b"C.UTF-8"
    assert complained == b"oops\n"


@pytest.mark.parametrize("ahead", [False, True])
async def test_what_a_command_leaves_behind_is_ended_with_it(tmp_path: Path, *, ahead: bool) -> None:
    ready = await ready_guard() if ahead else None
    script = "(setsid sh -c 'sleep 3600 & setsid sleep 3600 & echo $$ $! >pids; wait' &); until [ -s pids ]; do :; done"
    env = {"PATH": os.environ["PATH"]}
    process = await GuardedProcess.start(["sh", "-c", script], env, tmp_path, NO_INPUT, ready=ready)
    try:
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == Ended("exit", 0)
    finally:
        assert await process.close()
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_limits_that_no_control_group_holds_are_watched(tmp_path: Path) -> None:
    ready = await ready_guard()
    script = "for i in 1 2 3 4 5 6; do sleep 3600 & done; wait"
    env = {"PATH": os.environ["PATH"]}
    process = await GuardedProcess.start(
        ["sh", "-c", script], env, tmp_path, NO_INPUT, watched={"processes": 3}, ready=ready
    )
    try:
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == Ended("limit", reason="processes")
    finally:
        assert await process.close()


async def test_a_command_joins_its_control_groups(tmp_path: Path) -> None:
    ready = await ready_guard()
    with (tmp_path / "procs").open("w") as group:
        process = await GuardedProcess.start(
            ["true"], {"PATH": os.environ["PATH"]}, tmp_path, NO_INPUT, groups=[group.fileno()], ready=ready
        )
        try:
            async with asyncio.timeout(SECONDS):
                assert await process.wait() == Ended("exit", 0)
        finally:
            assert await process.close()
    assert (tmp_path / "procs").read_text() == "0"


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_command_inherits_its_three_streams_alone(tmp_path: Path, *, ahead: bool) -> None:
    ready = await ready_guard() if ahead else None
    env = {"PATH": os.environ["PATH"]}
    with (tmp_path / "procs").open("w") as group:
        process = await GuardedProcess.start(
            ["ls", "/proc/self/fd"], env, tmp_path, NO_INPUT, groups=[group.fileno()], ready=ready
        )
        try:
            async with asyncio.timeout(SECONDS):
                listed = await process.stdout.read()
        finally:
            assert await process.close()
    assert listed.split() == [b"0", b"1", b"2", b"3"], "3 is what ls reads the directory by"


async def test_nothing_stays_open_here(tmp_path: Path) -> None:
    left: list[int] = []
    for _ in range(2):
        ready, unused = await ready_guard(), await ready_guard()
        process = await GuardedProcess.start(["true"], {"PATH": os.environ["PATH"]}, tmp_path, NO_INPUT, ready=ready)
        async with asyncio.timeout(SECONDS):
            await process.wait()
        assert await process.close()
        await ready.close()
        await unused.close()
        await asyncio.sleep(0)  # transports are closed by the loop
        left.append(len(os.listdir("/proc/self/fd")))
    assert left[0] == left[1]


async def test_one_that_is_not_needed_ends(tmp_path: Path) -> None:
    ready = await ready_guard()
    await ready.close()
    with pytest.raises(ProcessLookupError):
        os.kill(ready.pid, 0)
    assert ready._guard.returncode == 0
    await ready.close()
    process = await GuardedProcess.start(["true"], {"PATH": os.environ["PATH"]}, tmp_path, NO_INPUT, ready=ready)
    try:
        assert await process.wait() == Ended("exit", 0)
    finally:
        assert await process.close()


@pytest.mark.parametrize("seen", [False, True])
async def test_another_is_started_where_it_was_ended(tmp_path: Path, *, seen: bool) -> None:
    """Also where the loop has not seen yet that it was killed."""
    ready = await ready_guard()
    os.kill(ready.pid, signal.SIGKILL)
    if seen:
        await ready._guard.wait()
    else:
        with suppress(ChildProcessError):  # where the loop's own thread was quicker
            os.waitid(os.P_PID, ready.pid, os.WEXITED | os.WNOWAIT)
    process = await GuardedProcess.start(["true"], {"PATH": os.environ["PATH"]}, tmp_path, NO_INPUT, ready=ready)
    try:
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == Ended("exit", 0)
    finally:
        assert await process.close()
    await ready.close()


async def test_another_is_started_where_it_was_taken(tmp_path: Path) -> None:
    taken = await ready_guard()
    pids = []
    for _ in range(2):
        process = await GuardedProcess.start(["true"], {"PATH": os.environ["PATH"]}, tmp_path, NO_INPUT, ready=taken)
        pids.append(process.pid)
        try:
            async with asyncio.timeout(SECONDS):
                assert await process.wait() == Ended("exit", 0)
        finally:
            assert await process.close()
    assert pids[0] == taken.pid != pids[1]
