"""Events, heartbeats and tasks between two nodes of federation in processes of their own, beside NATS in turns.

    python benchmarks/federation.py [--quick] [--json] [--markdown]

Ours go over the bus of paired daemons and over HTTP, each signed by the one node and verified, authorised and taken
into the table by the other before it answers with its receipt; tasks are in the journal before they start. An event is
timed until its receipt is here, which is twice the way. NATS request and reply carry as many bytes through a server
that proves and keeps nothing. Goals: p99 at most 20 ms over the loopback, a lookup at most 2 µs among 100,000 agents.
Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _report import Row, add_options, show

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from _federation_node import BEATS_OF_ENVELOPE, known_bytes
from messaging import nats_server
from sublet.federation.table import AgentTable
from sublet.protocol.federation.addresses import AgentAddress, node_name
from support.ports import free_port

ROUNDS = 3
EVERY_SECONDS = 0.01
WORKERS = 16
GOAL_P99_MS = 20.0
GOAL_LOOKUP_US = 2.0
AGENTS, NODES = 100_000, 1_000
LOOKUPS = 200_000
OURS = ("bus", "http")
NAMES = {"bus": "the bus", "http": "HTTP with TLS"}


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent in each turn."""

    paced: int
    flood: int
    tasks: int
    beats: int


@dataclass(slots=True)
class Figures:
    """What was measured of one carriage, in all turns."""

    ms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    tasks: list[float] = field(default_factory=list)
    beats: list[float] = field(default_factory=list)
    spent_us: list[float] = field(default_factory=list)

    def at(self, percent: int) -> float:
        """Return a percentile of all delays, in milliseconds."""
        return statistics.quantiles(self.ms, n=100)[percent - 1]


class Process:
    """A process that answers commands."""

    def __init__(self, *argv: str) -> None:
        script = str(Path(__file__).with_name("_federation_node.py"))
        self._process = subprocess.Popen(
            [sys.executable, script, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "ready"

    def ask(self, do: str, **more: object) -> Any:
        """Return what is answered to a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("a process has ended")
        return json.loads(line)

    def end(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()


@contextmanager
def process(*argv: str) -> Iterator[Process]:
    """Run a process while the block runs."""
    made = Process(*argv)
    try:
        yield made
    finally:
        made.end()


def ours(carriage: str, load: Load, figures: Figures) -> None:
    """Let two nodes speak, and add what was measured."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sublet-bench-")))
        ports = [free_port(), free_port()]
        nodes = []
        for name, (own, other) in zip(("ann", "bob"), (ports, ports[::-1]), strict=True):
            (place / name).mkdir()
            nodes.append(stack.enter_context(process("node", carriage, name, str(own), str(other), str(place / name))))
        for node in nodes:
            node.ask("meet")
        ann = nodes[0]
        ann.ask("latency", count=20, every=0)  # what is cold warms up
        figures.ms += ann.ask("latency", count=load.paced, every=EVERY_SECONDS)
        before = sum(node.ask("spent") for node in nodes)
        figures.rates.append(ann.ask("rate", count=load.flood, workers=WORKERS))
        figures.spent_us.append((sum(node.ask("spent") for node in nodes) - before) / load.flood * 1e6)
        figures.tasks.append(ann.ask("tasks", count=load.tasks, workers=8))
        figures.beats.append(ann.ask("beats", count=load.beats))


def theirs(size: int, load: Load, figures: Figures) -> None:
    """Let two clients of NATS speak, and add what was measured."""
    port = free_port()
    with nats_server(port), process("nats", "serve", str(port)), process("nats", "ask", str(port)) as asks:
        asks.ask("latency", count=20, every=0, bytes=size)
        figures.ms += asks.ask("latency", count=load.paced, every=EVERY_SECONDS, bytes=size)
        figures.rates.append(asks.ask("rate", count=load.flood, workers=WORKERS, bytes=size))


def lookups(agents: int) -> tuple[float, float]:
    """Return the microseconds of finding an agent, and of searching by capability, in a table of so many."""
    table = AgentTable()
    addresses = []
    for number in range(agents):
        address = AgentAddress(f"a{number}", node_name(f"n{number % NODES}.local"))
        table.register(address, "other", [f"c{number % 100}"], steady=0, wall=0)
        addresses.append(address)
    step = 7_919  # a prime, so that neighbours in the table are not looked up one after the other
    wanted = [addresses[number * step % agents] for number in range(LOOKUPS)]
    began = time.perf_counter()
    for address in wanted:
        table.find(address)
    each = (time.perf_counter() - began) / LOOKUPS
    began = time.perf_counter()
    for _ in range(100):
        next(iter(table.able("c7", 32)))
    return each * 1e6, (time.perf_counter() - began) / 100 * 1e6


def rows_of(mine: dict[str, Figures], nats: Figures | None, agents: int) -> list[Row]:
    """Return what was measured as rows."""
    rows = []
    for carriage, figures in mine.items():
        p50, p99 = figures.at(50), figures.at(99)
        name = NAMES[carriage]
        met = p99 <= GOAL_P99_MS
        rows.append(Row(f"event and its receipt over {name}, p99", p99, "ms", f"p50 {p50:.2f} ms", "≤ 20 ms", met))
        if nats is not None:
            told = f"{nats.at(50):.2f} ms (p99 {nats.at(99):.2f}), NATS"
            rows.append(Row(f"the same, p50, over {name}", p50, "ms", peer=told, ratio=p50 / nats.at(50)))
        rate = statistics.median(figures.rates)
        beside = statistics.median(nats.rates) if nats is not None else 0.0
        told = f"{beside:,.0f}/s, NATS" if nats is not None else ""
        ratio = rate / beside if beside else None
        rows += [
            Row(f"processor time of an event and its receipt over {name}, both ends",
                statistics.median(figures.spent_us), "µs"),
            Row(f"events a second over {name}, {WORKERS} under way", rate, "/s", peer=told, ratio=ratio),
            Row(f"agents' heartbeats a second over {name}", statistics.median(figures.beats), "/s",
                f"{BEATS_OF_ENVELOPE} in an envelope"),
            Row(f"tasks a second over {name}", statistics.median(figures.tasks), "/s",
                "asked, in the journal, done at once, answered"),
        ]  # fmt: skip
    find, able = lookups(agents)
    rows.append(
        Row(
            f"lookup by address, {agents:,} agents of {NODES:,} nodes", find, "µs", "", "≤ 2 µs", find <= GOAL_LOOKUP_US
        )
    )
    rows.append(Row("search by capability, the first found", able, "µs"))
    return rows


def main() -> int:
    """Measure, and show it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--quick", action="store_true", help="one short turn, which says little")
    options = parser.parse_args()
    load = Load(60, 100, 20, 5) if options.quick else Load(500, 1_500, 150, 60)
    mine = {carriage: Figures() for carriage in OURS}
    there = importlib.util.find_spec("nats") is not None and shutil.which("nats-server") is not None
    nats = Figures() if there else None
    if nats is None:
        print("NATS is not measured: pip install -r benchmarks/requirements.txt, and nats-server", file=sys.stderr)
    size = known_bytes()
    turns: list[Callable[[], None]] = [lambda one=one: ours(one, load, mine[one]) for one in OURS]  # type: ignore[misc]
    if nats is not None:
        turns.append(lambda: theirs(size, load, nats))
    for _ in range(1 if options.quick else ROUNDS):
        for turn in turns:
            turn()
    rows = rows_of(mine, nats, AGENTS // 20 if options.quick else AGENTS)
    show("federation", rows, options)
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
