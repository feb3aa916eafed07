"""How long an MCP host waits for its first answer, and what the process costs: our relay beside a plain SDK server.

    python benchmarks/relay.py [--rounds 20] [--home SUBLET_HOME] [--json]

Both are started in turns in the same run, so that a busy machine slows both. Without ``--home`` the relay talks to the
real MCP face over a daemon in memory, in a process of its own; with it, to the daemon that runs there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOAL_MS = 30.0
GOAL_MIB = 12.0
FIRST_REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}
SDK_SERVER = """
from mcp.server import MCPServer
server = MCPServer("plain")
@server.tool()
async def ping() -> str:
    "Say pong."
    return "pong"
server.run("stdio")
"""
HOST = """
import sys
import anyio
from support.fake_daemon_api import FakeDaemonApi
from support.mcp_face import served
from sublet.daemon.config.paths import resolve_home
async def main():
    async with served(FakeDaemonApi(), resolve_home()):
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)
anyio.run(main)
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One start: milliseconds from spawn to the first answer, memory then in MiB."""

    first_reply_ms: float
    rss_mib: float
    pss_mib: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Several starts of one command."""

    name: str
    rounds: int
    min_ms: float
    median_ms: float
    p95_ms: float
    rss_mib: float
    pss_mib: float


def start_once(command: Sequence[str], env: Mapping[str, str]) -> Sample:
    """Start ``command``, send ``initialize``, and measure until its answer is there."""
    line = json.dumps(FIRST_REQUEST).encode() + b"\n"
    begin = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(env)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line)
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        took = (time.perf_counter() - begin) * 1e3
        assert "result" in answer, answer
        sample = Sample(took, _memory(process.pid, "status", "VmRSS"), _memory(process.pid, "smaps_rollup", "Pss"))
        process.stdin.close()
        process.wait(10)
    return sample


def _memory(pid: int, file: str, field: str) -> float:
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(field)


def summarize(name: str, samples: Sequence[Sample]) -> Summary:
    """Return what is worth knowing of ``samples``; memory is the largest seen."""
    times = sorted(sample.first_reply_ms for sample in samples)
    return Summary(
        name=name,
        rounds=len(times),
        min_ms=times[0],
        median_ms=statistics.median(times),
        p95_ms=times[int(len(times) * 0.95)],
        rss_mib=max(sample.rss_mib for sample in samples),
        pss_mib=max(sample.pss_mib for sample in samples),
    )


@contextmanager
def warm_host() -> Iterator[str]:
    """Serve the MCP face in a process of its own and yield its ``SUBLET_HOME``."""
    with tempfile.TemporaryDirectory(prefix="sublet-bench-") as home:
        env = {**os.environ, "SUBLET_HOME": home, "PYTHONPATH": str(ROOT / "tests")}
        with subprocess.Popen(
            [sys.executable, "-c", HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield home
            process.stdin.close()
            process.wait(10)


def measure(home: str, rounds: int) -> list[Summary]:
    """Start each contender ``rounds`` times, in turns.

    Args:
        home: ``SUBLET_HOME`` of a warm daemon.
        rounds: starts of each.
    """
    env = {**os.environ, "SUBLET_HOME": home}
    contenders = {
        "sublet mcp": [str(Path(sys.executable).with_name("sublet")), "mcp"],
        "python -I -S relay.py": [sys.executable, "-I", "-S", str(ROOT / "src/sublet/mcp_server/relay.py")],
        "SDK stdio server": [sys.executable, "-c", SDK_SERVER],
    }
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for command in contenders.values() if rounds > 1 else ():
        start_once(command, env)  # bytecode and page cache
    for _ in range(rounds):
        for name, command in contenders.items():
            samples[name].append(start_once(command, env))
    return [summarize(name, found) for name, found in samples.items()]


def main() -> int:
    """Measure and print; the exit status tells whether the goals are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--home", help="SUBLET_HOME of a running daemon")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.home:
        found = measure(options.home, options.rounds)
    else:
        with warm_host() as home:
            found = measure(home, options.rounds)
    relay, sdk = found[0], found[-1]
    speed, memory = sdk.median_ms / relay.median_ms, sdk.rss_mib / relay.rss_mib
    met = relay.median_ms <= GOAL_MS and relay.rss_mib <= GOAL_MIB
    if options.json:
        print(json.dumps({"results": [asdict(s) for s in found], "speed": speed, "memory": memory, "met": met}))
        return 0 if met else 1
    print(f"{'spawn to first reply':24}{'min':>9}{'median':>9}{'p95':>9}{'RSS':>10}{'PSS':>10}")
    for s in found:
        times = f"{s.min_ms:7.1f}ms{s.median_ms:7.1f}ms{s.p95_ms:7.1f}ms"
        print(f"{s.name:24}{times}{s.rss_mib:7.1f}MiB{s.pss_mib:7.1f}MiB")
    print(f"sublet mcp is {speed:.0f} times faster and {memory:.1f} times smaller than an SDK server")
    print(f"goal: <= {GOAL_MS:.0f} ms (median) and <= {GOAL_MIB:.0f} MiB: {'met' if met else 'MISSED'}")
    if os.getloadavg()[0] > (os.cpu_count() or 1):
        print(f"the machine is busy (load {os.getloadavg()[0]:.1f}), so compare the ratio and not the milliseconds")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
