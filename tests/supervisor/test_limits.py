"""An agent that uses more than it may is ended and told so: in a control group, and where there is none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from sublet.supervisor.command import CommandProvider
from sublet.supervisor.job import Outcome
from sublet.supervisor.launch import Sandbox
from sublet.supervisor.limits import Limiter
from sublet.workspace.sandbox.bubblewrap import BubblewrapSandbox, Unsandboxed
from sublet.workspace.sandbox.cage import Cages
from sublet.workspace.sandbox.cgroups import Cgroups
from support.jobs import Log, command, job

pytestmark = pytest.mark.anyio
MIB = 1 << 20
BOTH = pytest.mark.parametrize("sandbox", [BubblewrapSandbox(), Unsandboxed()], ids=["bwrap", "unsandboxed"])

HOG = """PATH=/usr/bin:/bin python3 -c '
import time
held = [bytearray(8 << 20) for _ in range(40)]
print("held", flush=True)
time.sleep(20)
'"""
FORKS = "i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i+1)); done; echo forked; wait"
BURNER = "PATH=/usr/bin:/bin python3 -c 'while True: pass'"
SHARED_BURNERS = " & ".join([BURNER] * 3) + " & wait"


@pytest.fixture(params=["cgroup", "guard"])
def limiter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Limiter]:
    cgroups = Cgroups(f"sublet-test-{os.getpid()}") if request.param == "cgroup" else None
    if cgroups is not None and not cgroups.items:
        pytest.skip("no control group can be made here")
    cages = Cages(cgroups)
    yield cages
    assert cages.reap() == 0, "a group was left behind"
    cages.close()


async def run(
    limiter: Limiter, sandbox: Sandbox, root: Path, script: str, log: Log | None = None, **limits: int
) -> Outcome:
    agent = command(limits=limits)
    with anyio.fail_after(25):
        return await CommandProvider(agent, sandbox, limiter=limiter).run(job(root, script), log or Log())


@BOTH
async def test_a_memory_hog_is_ended(limiter: Limiter, sandbox: Sandbox, tmp_path: Path) -> None:
    outcome = await run(limiter, sandbox, tmp_path, f"echo begun; {HOG}", memory_bytes=128 * MIB)
    assert outcome.reason == "limit"
    assert outcome.why() == "the agent used more than 128 MiB of memory and was ended"
    assert outcome.summary.splitlines()[0] == "begun", "what it printed is told"


async def test_memory_counts_for_all_processes_together(limiter: Limiter, tmp_path: Path) -> None:
    many = " & ".join([HOG.replace("range(40)", "range(10)")] * 4) + " & wait"
    outcome = await run(limiter, BubblewrapSandbox(), tmp_path, many, memory_bytes=200 * MIB)
    assert outcome.why() == "the agent used more than 200 MiB of memory and was ended"


@BOTH
async def test_a_fork_bomb_is_ended(limiter: Limiter, sandbox: Sandbox, tmp_path: Path) -> None:
    outcome = await run(limiter, sandbox, tmp_path, FORKS, processes=24)
    assert outcome.why() == "the agent ran more than 24 processes at once and was ended"


@BOTH
async def test_a_burner_of_processor_time_is_ended(limiter: Limiter, sandbox: Sandbox, tmp_path: Path) -> None:
    outcome = await run(limiter, sandbox, tmp_path, SHARED_BURNERS, cpu_seconds=1)
    assert outcome.why() == "the agent used more than 1 s of processor time and was ended"


async def test_a_flood_of_output_is_ended_and_its_end_is_told(limiter: Limiter, tmp_path: Path) -> None:
    log = Log()
    outcome = await run(limiter, BubblewrapSandbox(), tmp_path, "yes | head -c 900000000", log, output_bytes=3 * MIB)
    assert outcome.why() == "the agent printed more than 3 MiB and was ended"
    assert outcome.summary.endswith("y\ny")
    assert sum(piece.dropped_chars for piece in log.pieces) > 0


@BOTH
async def test_a_full_scratch_directory_ends_it(limiter: Limiter, sandbox: Sandbox, tmp_path: Path) -> None:
    script = "head -c 9000000 /dev/zero >$TMPDIR/big; sleep 20"
    outcome = await run(limiter, sandbox, tmp_path, script, scratch_bytes=4 * MIB)
    assert outcome.why() == "the agent filled more than 4 MiB of temporary space and was ended"


async def test_the_private_tmp_is_bounded(limiter: Limiter, tmp_path: Path) -> None:
    script = "exec 2>&1; head -c 9000000 /dev/zero >/tmp/big; stat -c %s /tmp/big"
    outcome = await run(limiter, BubblewrapSandbox(), tmp_path, script, scratch_bytes=4 * MIB)
    assert outcome.summary.endswith(f"\n{4 * MIB}")
    assert "No space left on device" in outcome.summary


@BOTH
async def test_ordinary_work_within_its_limits_is_done(limiter: Limiter, sandbox: Sandbox, tmp_path: Path) -> None:
    script = "for i in 1 2 3; do (echo $i) & done; wait; echo $HOME >$TMPDIR/x"
    outcome = await run(
        limiter, sandbox, tmp_path, script, memory_bytes=64 * MIB, processes=50, cpu_seconds=5, output_bytes=4096
    )
    assert (outcome.reason, sorted(outcome.summary)) == ("done", sorted("1\n2\n3"))


async def test_nothing_is_limited_that_has_no_limit(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("memory_bytes", "processes", "cpu_seconds", "output_bytes", "scratch_bytes"))
    agent = command(limits=nothing)
    outcome = await CommandProvider(agent, BubblewrapSandbox()).run(job(tmp_path, "ulimit -d; ulimit -t"), Log())
    assert outcome.summary == "unlimited\nunlimited"


def test_limits_hold_for_an_ordinary_user(tmp_path: Path) -> None:
    """As nobody, where the kernel counts processes itself and no control group can be made."""
    if os.geteuid() != 0:
        pytest.skip("this is one already")
    source = Path(__file__).resolve().parents[2] / "src" / "sublet" / "supervisor" / "guard.py"
    guard = tmp_path / "guard.py"
    guard.write_bytes(source.read_bytes())
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_mode & 0o005 != 0o005:
            directory.chmod(directory.stat().st_mode | 0o005)
    script = "i=0; while [ $i -lt 200 ]; do sleep 5 & i=$((i+1)); done; wait"
    arguments = ["2", "1", "/", "processes=40", "sh", "-c", script]
    # Descriptor 2 is the control channel, whose other end stays open, and 1 the status.
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            ["/usr/bin/python3", "-I", "-S", str(guard), *arguments],
            stdout=subprocess.PIPE,
            stderr=reader,
            stdin=subprocess.DEVNULL,
            user=65534,
            group=65534,
            extra_groups=[],
            timeout=25,
            check=False,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert done.stdout.splitlines()[-1] == b"limit processes"
