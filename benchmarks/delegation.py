"""What a delegation costs on real parts: two daemons, the relay, the mount, the sandbox.

    python benchmarks/delegation.py [--quick] [--json] [--markdown]

Both daemons, the lender's and executor's, run here and talk over loopback. Where a peer makes sense it is measured in
turns in the same run, so that a busy machine slows both:

- a no-op delegation beside what anybody would do by hand: mount a directory by ``ssh`` and ``sshfs`` from OpenSSH's
  ``sshd``, run a program in it, unmount. That peer has no invitation, no audit, no sandbox and no journal;
- the relay beside a plain MCP server of the SDK (``benchmarks/relay.py``).

The public TypeScript reference of AWCP is not part of this repository, so its figure can't be taken in the same run; it
took 1.0 s for a no-op delegation on another machine.

The writer that is cut off writes and syncs one byte at a time through the mount, inside the sandbox, and leaves the
time of its last success and its first failure in memory that is shared with this process, so that a kill loses neither.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import json
import mmap
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import asyncssh

from _report import Row, add_options, show
from sftp import openssh_server, ssh_mount
from sublet.daemon.api.delegation_fields import OneDelegation
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import (
    CANCEL_DELEGATION,
    CREATE_DELEGATION,
    WAIT_FOR_END,
    CreateDelegation,
    WaitForEnd,
)
from sublet.daemon.config.paths import resolve_home
from sublet.daemon.control.client import ControlClient
from sublet.workspace.export import Export, LentDirectory, MountTarget
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.connection import connect
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules

SUBLET = Path(sys.executable).with_name("sublet")
RELAY_BENCHMARK = Path(__file__).with_name("relay.py")
LEASE = "dlg_00000000000000000000000000000000"
COMMAND_SECONDS = 60
END_SECONDS = 45.0

WRITER = """
import mmap, os, struct, time
shared = os.open(os.environ["TMPDIR"] + "/beats", os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(shared, 24)
seen = mmap.mmap(shared, 24)
file = os.open("beat", os.O_WRONLY | os.O_CREAT, 0o600)
count = 0
try:
    while True:
        os.pwrite(file, b"x", count)
        os.fsync(file)
        count += 1
        struct.pack_into("dq", seen, 0, time.monotonic(), count)
except OSError:
    struct.pack_into("d", seen, 16, time.monotonic())
    time.sleep(600)
"""
AGENTS = {
    "agents": [
        {"id": "shell", "provider": {"type": "command", "argv": ["sh", "-s"]}},
        {"id": "writer", "provider": {"type": "command", "argv": [sys.executable, "-I", "-S", "-c", WRITER]}},
    ]
}


@dataclass(frozen=True)
class Size:
    """How often everything is done; ``idle_seconds`` is how long an idle daemon is watched."""

    round_trips: int
    cuts: int
    starts: int
    idle_seconds: float


FULL = Size(round_trips=50, cuts=10, starts=15, idle_seconds=20.0)
QUICK = Size(round_trips=2, cuts=1, starts=1, idle_seconds=0.5)


class Side:
    """One daemon with a home of its own."""

    def __init__(self, home: Path, pid: int) -> None:
        self.home = home
        self.pid = pid

    def client(self) -> ControlClient:
        """Return a client of its control API."""
        return ControlClient(resolve_home({"SUBLET_HOME": str(self.home)}))

    @property
    def rss(self) -> float:
        """Resident memory in MiB."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise LookupError("VmRSS")

    @property
    def processor_seconds(self) -> float:
        """Processor time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sublet(home: Path, *arguments: str) -> Any:
    """Run ``sublet … --json`` and return what it printed."""
    done = subprocess.run(
        [str(SUBLET), *arguments, "--json"],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"sublet {arguments[0]} failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def environment(home: Path) -> dict[str, str]:
    """Return the environment of commands for the daemon of ``home``."""
    return {**os.environ, "SUBLET_HOME": str(home)}


@contextlib.contextmanager
def two_sides(base: Path) -> Iterator[tuple[Side, Side]]:
    """Start and pair a lender and a worker that it knows as bob; stop both at the end."""
    agents = base / "agents.json"
    agents.write_text(json.dumps(AGENTS))
    lender, worker = base / "a", base / "b"
    listen = ("--detach", "--a2a", "127.0.0.1:0", "--sftp", "127.0.0.1:0")
    with contextlib.ExitStack() as stack:
        sides = []
        for home, more in ((lender, ()), (worker, ("--agent", str(agents)))):
            stack.callback(sublet, home, "down")
            sides.append(Side(home, sublet(home, "up", *listen, *more)["pid"]))
        sublet(lender, "peers", "add", sublet(worker, "pair")["link"], "--name", "bob")
        yield sides[0], sides[1]


class Host:
    """An MCP host of few words: a relay of its own, and one tool call at a time."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [str(SUBLET), "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(home), text=True
        )
        self._count = 0
        client = {"name": "bench", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def ask(self, method: str, params: dict[str, object]) -> Any:
        """Send a request and return its result."""
        self._count += 1
        self._write({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        while True:
            answer = json.loads(_stream(self._process.stdout).readline())
            if answer.get("id") == self._count:
                return answer["result"]

    def close(self) -> None:
        """End the relay."""
        _stream(self._process.stdin).close()
        self._process.wait(END_SECONDS)
        _stream(self._process.stdout).close()

    def _write(self, message: dict[str, object]) -> None:
        stdin = _stream(self._process.stdin)
        stdin.write(json.dumps(message) + "\n")
        stdin.flush()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


# what is measured


async def round_trips(lender: Side, base: Path, size: Size) -> list[Row]:
    """Measure the time to the handle and to the end of a delegation that does nothing, beside mounting by hand."""
    project = base / "project"
    project.mkdir()
    (project / "README").write_text("something to lend\n")
    sublet(lender.home, "allow", str(project))
    handles, ends, peers = [], [], []
    given = {"workspace_dir": str(project), "peer": "bob/shell", "prompt": ":"}
    host = Host(lender.home)
    try:
        with by_hand(base, project) as mount_once:
            async with lender.client() as control:
                for number in range(-1, size.round_trips):  # the first one warms everything up
                    began = time.perf_counter()
                    answer = host.ask("tools/call", {"name": "delegate", "arguments": given})
                    handle = time.perf_counter() - began
                    view = await _end(control, answer["structuredContent"]["delegation_id"])
                    end = time.perf_counter() - began
                    assert view.state == "completed", view
                    peer = mount_once() if mount_once is not None else None
                    if number >= 0:
                        handles.append(handle * 1e3)
                        ends.append(end * 1e3)
                        peers += [] if peer is None else [peer * 1e3]
    finally:
        host.close()
    p95 = _p95(handles)
    took = statistics.median(ends)
    by_ssh = statistics.median(peers) if peers else None
    return [
        Row("delegate to handle, p50", statistics.median(handles), "ms", "MCP call through the relay"),
        Row("delegate to handle, p95", p95, "ms", "", "≤ 50 ms", p95 <= 50),
        Row(
            "no-op delegation",
            took,
            "ms",
            f"p95 {_p95(ends):.0f}",
            "≤ 250 ms",
            took <= 250,
            f"{by_ssh:.0f} ms, sshfs by hand" if by_ssh else "no sshd here",
            took / by_ssh if by_ssh else None,
        ),
    ]


@contextlib.contextmanager
def by_hand(base: Path, project: Path) -> Iterator[Callable[[], float] | None]:
    """Yield what mounts ``project`` by OpenSSH and sshfs, runs nothing in it and unmounts; None without ``sshd``."""
    if shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin") is None:
        yield None
        return
    home = base / "by-hand"
    home.mkdir()
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(home / "key")
    (home / "key").chmod(0o600)
    with openssh_server(home, key.export_public_key().decode().strip()) as (port, host_key):
        count = 0

        def mount_once() -> float:
            nonlocal count
            count += 1
            began = time.perf_counter()
            with ssh_mount(home, str(count), port, getpass.getuser(), host_key, str(project)) as point:
                subprocess.run(["sh", "-c", ":"], cwd=point, check=True)
            return time.perf_counter() - began

        yield mount_once


async def cuts(lender: Side, worker: Side, base: Path, size: Size) -> list[Row]:
    """Measure how long the work can still write after a cancel, and that nothing lands later."""
    project = base / "cut"
    project.mkdir()
    last, refused = [], []
    async with lender.client() as control:
        for _ in range(size.cuts):
            request = CreateDelegation(workspace_dir=str(project), peer="bob/writer", prompt=":")
            view = await control.call(CREATE_DELEGATION, request)
            with await _beats(worker, view.delegation_id) as beats:
                began = time.monotonic()
                await control.call(CANCEL_DELEGATION, OneDelegation(delegation_id=view.delegation_id))
                view = await _end(control, view.delegation_id)
                assert view.state == "cancelled", view
                landed = (project / "beat").stat().st_size
                success, count, failure = struct.unpack("dqd", beats[:])
                await asyncio.sleep(0.3)
                assert (project / "beat").stat().st_size == landed <= count + 1, "something landed after the end"
            last.append(max(0.0, success - began) * 1e3)
            refused += [(failure - began) * 1e3] if failure else []
            (project / "beat").unlink()
    # Killed before it could see a failure, the writer's last success is all there is to tell.
    worst = max([*last, *refused])
    seen = f"{statistics.median(refused):.1f} ms" if refused else "killed before it saw one"
    return [
        Row(
            "cancel to refused I/O, worst",
            worst,
            "ms",
            f"last success {statistics.median(last):.1f} ms, first failure {seen}, medians of {size.cuts}",
            "≤ 100 ms",
            worst <= 100,
        )
    ]


async def _beats(worker: Side, delegation_id: str) -> mmap.mmap:
    """Wait until the writer writes, and return the memory that it shares."""
    path = worker.home / "state" / "scratch" / delegation_id / "tmp" / "beats"
    until = time.monotonic() + END_SECONDS
    while time.monotonic() < until:
        if path.exists() and path.stat().st_size == 24:
            with path.open("rb") as file:
                beats = mmap.mmap(file.fileno(), 24, prot=mmap.PROT_READ)
            while time.monotonic() < until:
                if struct.unpack_from("q", beats, 8)[0] > 20:
                    return beats
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
    raise SystemExit("the writer did not start")


async def expiries(base: Path, size: Size) -> list[Row]:
    """Measure how long the server still accepts writes of an executor that ignores the end of its lease."""
    late = []
    root = base / "expiry"
    root.mkdir()
    for _ in range(size.cuts):
        key = asyncssh.generate_private_key("ssh-ed25519")
        plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
        await plane.start("127.0.0.1", 0)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(plane.serve())
            public = key.export_public_key().decode().strip()
            ends = asyncio.get_running_loop().time() + 1.0
            plane.open(
                Export(
                    LEASE,
                    (LentDirectory("workspace", root, "rw", Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, ())),),
                    public,
                    1.0,
                )
            )
            target = MountTarget("127.0.0.1", plane.address[1], LEASE, plane.host_key_line)
            connection = await connect(target, key, 5.0)
            try:
                async with connection.start_sftp_client() as client, client.open("/workspace/beat", "wb") as file:
                    while True:
                        await file.write(b"x", 0)
            except (asyncssh.Error, OSError):
                late.append(max(0.0, asyncio.get_running_loop().time() - ends) * 1e3)
            connection.abort()
            serving.cancel()
    worst = max(late)
    detail = f"median {statistics.median(late):.1f}"
    return [Row("expiry to refused I/O, worst", worst, "ms", detail, "≤ 100 ms", worst <= 100)]


def relay(lender: Side, size: Size) -> list[Row]:
    """Run the relay's own benchmark against this daemon."""
    argv = [sys.executable, str(RELAY_BENCHMARK), "--json", "--rounds", str(size.starts), "--home", str(lender.home)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"relay.py failed: {done.stderr}")
    results = json.loads(done.stdout)["results"]
    ours, sdk = results[0], results[-1]
    return [
        Row(
            "relay, spawn to first reply",
            ours["median_ms"],
            "ms",
            f"p95 {ours['p95_ms']:.0f}",
            "≤ 30 ms",
            ours["median_ms"] <= 30,
            f"{sdk['median_ms']:.0f} ms, SDK server",
            ours["median_ms"] / sdk["median_ms"],
        ),
        Row(
            "relay, resident memory",
            ours["rss_mib"],
            "MiB",
            f"PSS {ours['pss_mib']:.1f}",
            "≤ 12 MiB",
            ours["rss_mib"] <= 12,
            f"{sdk['rss_mib']:.0f} MiB, SDK server",
            ours["rss_mib"] / sdk["rss_mib"],
        ),
    ]


def idle(side: Side, size: Size) -> list[Row]:
    """Watch a daemon that is paired and has nothing to do."""
    began, used = time.monotonic(), side.processor_seconds
    time.sleep(size.idle_seconds)
    share = (side.processor_seconds - used) / (time.monotonic() - began) * 100
    return [
        Row("daemon idle, resident memory", side.rss, "MiB", "", "≤ 130 MiB", side.rss <= 130),
        Row(
            "daemon idle, processor",
            share,
            "% of a core",
            f"over {size.idle_seconds:g} s",
            "< 0.5 %",
            share < 0.5,
        ),
    ]


def command_line(lender: Side, size: Size) -> list[Row]:
    """Measure a whole run of the command line against a warm daemon."""
    rows = []
    for arguments in (["ls", "--json"], ["--version"]):
        walls, processor = [], []
        for number in range(-1, size.starts):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(
                [str(SUBLET), *arguments], env=environment(lender.home), stdout=subprocess.DEVNULL, check=True
            )
            wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            if number >= 0:
                walls.append(wall * 1e3)
                processor.append((after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1e3)
        detail = f"{statistics.median(processor):.0f} ms of processor"
        rows.append(Row(f"sublet {' '.join(arguments)}", statistics.median(walls), "ms", detail))
    return rows


async def _end(control: ControlClient, delegation_id: str) -> DelegationView:
    return await control.call(WAIT_FOR_END, WaitForEnd(delegation_id=delegation_id, timeout=END_SECONDS))


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


async def measure(base: Path, size: Size) -> list[Row]:
    """Measure everything, the idle daemon first."""
    with two_sides(base) as (lender, worker):
        for side in (lender, worker):
            sublet(side.home, "whoami")  # messaging begins when there is a peer, which is not idling
        watched = idle(lender, size)
        rows = await round_trips(lender, base, size)
        rows += await cuts(lender, worker, base, size)
        rows += await expiries(base, size)
        rows += relay(lender, size)
        rows += watched
        rows.append(Row("daemon after the work, resident memory", lender.rss, "MiB", f"executor {worker.rss:.0f}"))
        return [*rows, *command_line(lender, size)]


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="everything only a few times, to see that it works")
    add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sublet-bench-") as base:
        rows = asyncio.run(measure(Path(base), QUICK if options.quick else FULL))
    show("delegation", rows, options)


if __name__ == "__main__":
    main()
