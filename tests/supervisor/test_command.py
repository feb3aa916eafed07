"""The command provider with real processes, in the real sandbox and without any."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import asyncssh
import pytest

from sublet.supervisor.command import CommandProvider
from sublet.supervisor.job import Job, JobResource, Output
from sublet.supervisor.launch import Sandbox
from sublet.workspace.mount.mount import Mount
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox, Unsandboxed
from sublet.workspace.ssh.connection import connect
from support.jobs import Log, command, job
from support.sftp_lender import files_of, lender, lender_process

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("sandbox", [BubblewrapSandbox(), Unsandboxed()], ids=["bwrap", "unsandboxed"])


def running(marker: str) -> bool:
    """Tell whether a process with ``marker`` in its arguments lives."""
    return subprocess.run(["pgrep", "-f", f"sleep {marker}$"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def marker(tmp_path: Path) -> str:
    """Return a number of seconds that no other sleep in the machine has."""
    return f"86{os.getpid()}{abs(hash(tmp_path)) % 1000:03}"


@BOTH
async def test_the_prompt_is_a_script_and_the_result_its_output(sandbox: Sandbox, tmp_path: Path) -> None:
    log = Log()
    task = job(tmp_path, "pwd; echo made >made; echo aside >&2; cat $SUBLET_PROMPT_FILE | wc -l")
    outcome = await CommandProvider(command(), sandbox).run(task, log)
    assert (outcome.reason, outcome.exit_code) == ("done", 0)
    assert outcome.summary == f"{task.workspace}\n0"
    assert log.text() == f"{task.workspace}\n0\n"
    assert log.text("stderr") == "aside\n"
    assert (task.workspace / "made").read_text() == "made\n"
    assert (task.workspace / "made").stat().st_mode & 0o777 == 0o644


@BOTH
async def test_c17_git_trusts_the_lent_directory_and_knows_who_commits(sandbox: Sandbox, tmp_path: Path) -> None:
    task = job(tmp_path, "git config --global --get-all safe.directory; git config user.email")
    outcome = await CommandProvider(command(), sandbox).run(task, Log())
    assert outcome.summary.splitlines() == [str(task.workspace), f"agent@{task.delegation_id}"]


@BOTH
async def test_the_environment_is_the_tasks_own(sandbox: Sandbox, tmp_path: Path) -> None:
    task = job(tmp_path, "env | sort; touch $HOME/x $TMPDIR/y", seconds=20)
    environ = {"PATH": os.environ["PATH"], "KEY_GIVEN": "k1", "KEY_KEPT": "k2", "HOME": "/root", "SUBLET_HOME": "/s"}
    outcome = await CommandProvider(command(environment=["KEY_GIVEN"]), sandbox, environ).run(task, Log())
    seen = dict(line.split("=", 1) for line in outcome.summary.splitlines())
    for shell_own in ("PWD", "OLDPWD", "SHLVL", "_"):
        seen.pop(shell_own, None)
    assert seen == {
        "HOME": str(task.scratch / "home"),
        "KEY_GIVEN": "k1",
        "LANG": "C.UTF-8",
        "PATH": os.environ["PATH"],
        "SUBLET_ACCESS_MODE": "rw",
        "SUBLET_DEADLINE": "2030-01-01T00:00:00Z",
        "SUBLET_DELEGATION_ID": task.delegation_id,
        "SUBLET_META": str(task.meta),
        "SUBLET_PROMPT_FILE": str(task.scratch / "prompt.txt"),
        "SUBLET_REMAINING_SECONDS": "20",
        "SUBLET_RESOURCES": json.dumps([{"name": "workspace", "path": str(task.workspace), "access_mode": "rw"}]),
        "SUBLET_WORKSPACE": str(task.workspace),
        "TMPDIR": str(task.scratch / "tmp"),
    }
    assert outcome.reason == "done"


async def test_placeholders_are_replaced_in_arguments_and_nothing_is_a_shell_line(tmp_path: Path) -> None:
    argv = ("printf", "%s\n", "{delegation_id}", "w={workspace}:{meta}", "{unknown} {print $1} $(id) `id`; id")
    task = job(tmp_path, "{workspace}")
    outcome = await CommandProvider(command(*argv), BubblewrapSandbox()).run(task, Log())
    assert outcome.summary.splitlines() == [
        task.delegation_id,
        f"w={task.workspace}:{task.meta}",
        "{unknown} {print $1} $(id) `id`; id",
    ]
    outcome = await CommandProvider(command("cat"), BubblewrapSandbox()).run(task, Log())
    assert outcome.summary == "{workspace}"


@BOTH
@pytest.mark.parametrize(
    ("prompt", "reason", "code", "detail"),
    [
        ("exit 0", "done", 0, ""),
        ("exit 3", "failed", 3, "exit status 3"),
        ("echo why >&2; exit 255", "failed", 255, "exit status 255"),
        ("kill -SEGV $$", "crashed", None, "ended by SIGSEGV"),
        ("kill -KILL $$", "crashed", None, "ended by SIGKILL"),
    ],
)
async def test_how_it_ended_is_told_apart(
    sandbox: Sandbox, tmp_path: Path, prompt: str, reason: str, code: int | None, detail: str
) -> None:
    outcome = await CommandProvider(command(), sandbox).run(job(tmp_path, prompt), Log())
    assert (outcome.reason, outcome.detail) == (reason, detail)
    if code is not None:
        assert outcome.exit_code == code
    assert outcome.summary == ("why" if "why" in prompt else "")


@BOTH
async def test_a_program_that_is_not_there_is_a_crash_that_says_so(sandbox: Sandbox, tmp_path: Path) -> None:
    outcome = await CommandProvider(command("no-such-program"), sandbox).run(job(tmp_path, ""), Log())
    assert outcome.reason == "crashed"
    assert "No such file" in outcome.summary + outcome.detail


@BOTH
async def test_the_lease_and_the_agent_limit_the_time(sandbox: Sandbox, tmp_path: Path, marker: str) -> None:
    script = f"echo begun; sleep {marker}"
    outcome = await CommandProvider(command(), sandbox).run(job(tmp_path, script, seconds=0.5), Log())
    assert (outcome.reason, outcome.exit_code, outcome.summary) == ("timeout", None, "begun")
    assert not running(marker)
    provider = CommandProvider(command(timeout_seconds=0.5), sandbox)
    assert (await provider.run(job(tmp_path, script), Log())).reason == "timeout"
    assert not running(marker)


ESCAPES = {
    "background": "sleep {0} &",
    "session": "setsid sleep {0} &",
    "double fork": "(setsid sh -c 'setsid sleep {0} >/dev/null 2>&1 &' &)",
    "daemon": "python3 -c 'import os,sys\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    'os.closerange(0,9); os.execvp("sleep",["sleep","{0}"])\' ',
    "deaf": "trap '' TERM HUP INT; sh -c 'trap \"\" TERM HUP INT; sleep {0}' & ",
}


@BOTH
@pytest.mark.parametrize("how", ESCAPES)
@pytest.mark.parametrize("end", ["exit", "cancel"])
async def test_the_whole_tree_ends_with_the_task(
    sandbox: Sandbox, tmp_path: Path, marker: str, how: str, end: str
) -> None:
    script = ESCAPES[how].format(marker) + f"\nwhile ! pgrep -f 'sleep {marker}$' >/dev/null; do sleep 0.02; done\n"
    log = Log()
    provider = CommandProvider(command(), sandbox)
    if end == "exit":
        # The sleeping grandchild holds the output open, which must not keep the run from ending.
        outcome = await provider.run(job(tmp_path, script + "echo ready"), log)
        assert (outcome.reason, outcome.summary) == ("done", "ready")
    else:
        run = asyncio.ensure_future(provider.run(job(tmp_path, script + "echo ready; sleep 100"), log))
        while log.text() != "ready\n":
            assert not run.done()
            await asyncio.sleep(0.02)
        assert running(marker)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert not running(marker)


@BOTH
async def test_a_cancelled_scope_ends_it_just_as_well(sandbox: Sandbox, tmp_path: Path, marker: str) -> None:
    with anyio.CancelScope() as scope:

        def report(piece: Output) -> None:
            scope.cancel()

        script = f"setsid sleep {marker} & echo ready; wait"
        await CommandProvider(command(), sandbox).run(job(tmp_path, script), report)
    assert scope.cancelled_caught
    assert not running(marker)


@BOTH
async def test_the_tree_ends_when_the_daemon_is_killed(sandbox: Sandbox, tmp_path: Path, marker: str) -> None:
    task = job(tmp_path, "")
    (tmp_path / "run.py").write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from support.jobs import Log, command, job\n"
        "from sublet.supervisor.command import CommandProvider\n"
        "from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox, Unsandboxed\n"
        f"script = 'setsid sleep {marker} & echo >started; wait'\n"
        f"provider = CommandProvider(command(), {type(sandbox).__name__}())\n"
        f"asyncio.run(provider.run(job(Path({str(tmp_path)!r}), script), Log()))\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    daemon = await asyncio.create_subprocess_exec(sys.executable, str(tmp_path / "run.py"), env=environ)
    while not (task.workspace / "started").exists() or not running(marker):
        assert daemon.returncode is None
        await asyncio.sleep(0.02)
    daemon.kill()
    await daemon.wait()
    async with asyncio.timeout(10):
        while running(marker):
            await asyncio.sleep(0.02)


async def test_without_its_guard_the_task_has_crashed_and_is_gone(tmp_path: Path, marker: str) -> None:
    log = Log()
    script = f"echo ready; setsid sleep {marker} & wait"
    run = asyncio.ensure_future(CommandProvider(command(), BubblewrapSandbox()).run(job(tmp_path, script), log))
    while "ready" not in log.text() or not running(marker):
        assert not run.done()
        await asyncio.sleep(0.02)
    guard = subprocess.run(["pgrep", "-f", f"guard.py .* {tmp_path}"], capture_output=True, text=True, check=True)
    os.kill(int(guard.stdout), signal.SIGKILL)
    outcome = await run
    assert (outcome.reason, outcome.detail) == ("crashed", "ended by SIGKILL: its guard was ended")
    while running(marker):
        await asyncio.sleep(0.02)


async def test_a_program_that_never_reads_its_prompt_hangs_nothing(tmp_path: Path) -> None:
    outcome = await CommandProvider(command("true"), BubblewrapSandbox()).run(job(tmp_path, "x" * 2_000_000), Log())
    assert outcome.reason == "done"


async def test_endless_output_is_bounded_and_its_end_is_kept(tmp_path: Path) -> None:
    log = Log()
    script = "head -c 30000000 /dev/zero | tr '\\0' x; echo; echo the end"
    outcome = await CommandProvider(command(), BubblewrapSandbox()).run(job(tmp_path, script), log)
    assert outcome.reason == "done"
    assert len(outcome.summary) <= 8_000
    assert outcome.summary.endswith("x\nthe end")
    told = sum(len(piece.text) for piece in log.pieces)
    assert told <= 1 << 20
    assert told + sum(piece.dropped_chars for piece in log.pieces) == 30_000_009
    assert max(len(piece.text) for piece in log.pieces) <= 16_384


async def test_many_small_writes_become_few_pieces_and_come_while_it_runs(tmp_path: Path) -> None:
    log = Log()
    script = "for i in $(seq 400); do echo $i; done; while [ ! -e go ]; do sleep 0.01; done"
    task = job(tmp_path, script)
    run = asyncio.ensure_future(CommandProvider(command(), BubblewrapSandbox()).run(task, log))
    while not log.text().endswith("\n400\n"):
        assert not run.done()
        await asyncio.sleep(0.01)
    (task.workspace / "go").touch()
    await run
    assert len(log.pieces) < 40


async def test_bytes_that_are_no_text_and_terminal_escapes_do_not_reach_the_summary(tmp_path: Path) -> None:
    log = Log()
    script = r"printf 'a\377b \033[31mred\033[0m \033]0;title\007 \303'; sleep 0.3; printf '\244\n'"
    outcome = await CommandProvider(command(), BubblewrapSandbox()).run(job(tmp_path, script), log)
    assert outcome.summary == "a\ufffdb red  ä"
    assert log.text().endswith("ä\n")


async def test_a_read_only_lease_is_read_only_in_the_sandbox_too(tmp_path: Path) -> None:
    task = job(tmp_path, "cat file; touch new || echo refused", access_mode="ro")
    (task.workspace / "file").write_text("text\n")
    outcome = await CommandProvider(command(), BubblewrapSandbox(masked=[tmp_path])).run(task, Log())
    assert outcome.summary == "text\nrefused"
    assert not (task.workspace / "new").exists()


async def test_a_program_outside_the_system_directories_is_found(tmp_path: Path) -> None:
    prefix = tmp_path / "opt" / "tool"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    (prefix / "lib" / "data").write_text("from lib\n")
    tool = prefix / "lib" / "tool-1.0"
    tool.write_text(f"#!/bin/sh\ncat {prefix}/lib/data\n")
    tool.chmod(0o755)
    (prefix / "bin" / "tool").symlink_to("../lib/tool-1.0")
    environ = {"PATH": f"{prefix}/bin:/usr/bin:/bin"}
    outcome = await CommandProvider(command("tool"), BubblewrapSandbox(), environ).run(job(tmp_path, ""), Log())
    assert (outcome.reason, outcome.summary) == ("done", "from lib")


async def test_it_works_in_a_mount_and_ends_when_the_link_does(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    export = tmp_path / "export"
    (export / "workspace").mkdir(parents=True)
    (export / "meta").mkdir()
    mounts = Mounts(tmp_path / "mounts")
    log = Log()
    async with lender(files_of(export), key) as target, await connect(target, key, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        script = "echo result >result; echo written; while :; do cat result >/dev/null || exit 9; done"
        provider = CommandProvider(command(), BubblewrapSandbox(masked=[tmp_path / "mounts"]))
        run = asyncio.ensure_future(provider.run(inside(mount, tmp_path, script), log))
        while "written" not in log.text():
            assert not run.done(), run.result()
            await asyncio.sleep(0.01)
        assert (export / "workspace" / "result").read_text() == "result\n"
        # Whoever is reading just then is told only while somebody attends to it.
        attending = asyncio.ensure_future(mount.attend())
        connection.abort()
        outcome = await run
        attending.cancel()
        assert (outcome.reason, outcome.exit_code) == ("failed", 9)
        assert await mount.detach() is False


@BOTH
async def test_starting_on_a_dead_mount_does_not_block_the_loop(sandbox: Sandbox, tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    export = tmp_path / "export"
    (export / "workspace").mkdir(parents=True)
    mounts = Mounts(tmp_path / "mounts")
    async with lender_process(export, key) as (target, pid), await connect(target, key, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        os.kill(pid, signal.SIGSTOP)
        log = Log()
        run = asyncio.ensure_future(CommandProvider(command(), sandbox).run(inside(mount, tmp_path, "echo ran"), log))
        for _ in range(20):
            await asyncio.sleep(0.02)
        assert not run.done()
        run.cancel()
        connection.abort()  # as the lender does when a lease is cancelled: whatever waits for the mount is freed
        with pytest.raises(asyncio.CancelledError):
            await run
        assert log.text() == ""
        assert await mount.detach() is False


def inside(mount: Mount, root: Path, prompt: str) -> Job:
    """Return a job whose workspace is in ``mount``."""
    task = job(root, prompt)
    resources = [JobResource("workspace", mount.path / "workspace", task.access_mode)]
    return dataclasses.replace(task, mount_point=mount.path, resources=resources, meta=mount.path / "meta")


async def test_a_failure_tells_the_end_of_both_streams_and_the_reason_last(tmp_path: Path) -> None:
    script = "echo collecting; echo 'line one' >&2; echo 'line two' >&2; exit 1"
    outcome = await CommandProvider(command(), Unsandboxed()).run(job(tmp_path, script), Log())
    assert outcome.summary == "collecting\n\nline one\nline two"
    long = "seq 1 5000; seq 1 5000 >&2; exit 1"
    outcome = await CommandProvider(command(), Unsandboxed()).run(job(tmp_path / "long", long), Log())
    assert len(outcome.summary) <= 8_000
    assert outcome.summary.count("4999\n5000") == 2
