"""A guard that was started ahead runs its command exactly as one that is started with it."""

from __future__ import annotations

import asyncio
import os
import signal
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


async def test_one_that_is_not_needed_ends(tmp_path: Path) -> None:
    ready = await ready_guard()
    await ready.close()
    await ready.close()
    process = await GuardedProcess.start(["true"], {"PATH": os.environ["PATH"]}, tmp_path, NO_INPUT, ready=ready)
    try:
        assert await process.wait() == Ended("exit", 0)
    finally:
        assert await process.close()


async def test_another_is_started_where_it_was_ended_or_taken(tmp_path: Path) -> None:
    ready, taken = await ready_guard(), await ready_guard()
    os.kill(ready.pid, signal.SIGKILL)
    env = {"PATH": os.environ["PATH"]}
    for guard in (ready, taken, taken):
        process = await GuardedProcess.start(["true"], env, tmp_path, NO_INPUT, ready=guard)
        try:
            async with asyncio.timeout(SECONDS):
                ended = await process.wait()
        finally:
            assert await process.close()
        # One that was killed just now may not have been seen to be gone; its command has then not run.
        assert ended == Ended("exit", 0) or (guard is ready and ended.reason == "its guard was ended")
    await ready.close()
