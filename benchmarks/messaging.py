"""Messages between two real processes, beside NATS, mosquitto and pycrdt-websocket in turns in the same run.

Ours go over Zenoh on the loopback in TLS with pinned keys, each signed, verified, authorised and durable at both ends
before it is told; the others do none of that, and have a server between the two. Goals: p50 at most 2 ms, at least
2,000 messages a second, the rate in a room of 1,000,000 messages at least 0.9 of that in an empty one, a start of at
most 2 s and 300 MiB there, and 15 s for 10,000 messages of which half were edited while a member was away.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from _report import Row, add_options, show

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import _message_catch_up as catching_up
import _message_rooms as rooms
from _message_catch_up import cpu_seconds
from support.ports import free_port
from support.room_processes import RoomProcess, room_process

SIZES = (0, 10_000, 100_000, 1_000_000)
QUICK_SIZES = (0, 1_000)
SHARED_SIZE = 10_000
"""Messages in the larger room of pycrdt-websocket, which gets slower with each."""
OF_PART = 1_000_000
"""Where the numbers of the messages of one part of a turn begin, beyond all that a room holds before."""
ROUNDS = 3
WORKERS = 32
START_SECONDS = 60.0
GOAL_P50_MS = 2.0
GOAL_RATE = 2_000
GOAL_FLAT = 0.9
GOAL_START_SECONDS = 2.0
GOAL_MIB = 300


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent in each turn: messages one after the other at two paces, then as many at once as it takes."""

    paced: int
    flood: int
    paces: tuple[float, ...] = (0.02, 0.005)


@dataclass(slots=True)
class Figures:
    """What was measured of one contender, in all turns."""

    delays_ms: dict[float, list[float]] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    send_us: list[float] = field(default_factory=list)
    take_us: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    mib: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Return messages a second, the median of all turns."""
        return statistics.median(self.rates)

    def p50(self, pace: float) -> float:
        """Return the median delay at a pace, in milliseconds."""
        return statistics.median(self.delays_ms[pace])

    def p99(self, pace: float) -> float:
        """Return the 99th percentile of the delays at a pace, in milliseconds."""
        ordered = sorted(self.delays_ms[pace])
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]

    def add_delays(self, pace: float, sent: dict[Any, int], told: dict[Any, int]) -> None:
        """Add what came of messages that were sent at a pace."""
        self.delays_ms.setdefault(pace, []).extend((told[key] - at) / 1e6 for key, at in sent.items())


def cursor_of(process: RoomProcess) -> int:
    """Return the cursor of a process's last event."""
    since = 0
    while True:
        answer = process.ask("watch", since=since, wait_seconds=0.0)
        if answer["cursor"] == since:
            return since
        since = int(answer["cursor"])


def ours(directory: Path, room: str, load: Load, figures: Figures) -> None:
    """Let two processes talk in a room, and add what was measured."""
    with ExitStack() as stack:
        first, second = free_port(), free_port()
        begun = time.monotonic()
        alice = stack.enter_context(room_process("alice", directory, first, pinned=True))
        figures.starts.append(time.monotonic() - begun)
        bob = stack.enter_context(room_process("bob", directory, second, first, pinned=True))
        bob.ask("sync", room_id=room)
        for pace in load.paces:
            bob.tell("receive", since=cursor_of(bob), count=load.paced)
            sent = alice.ask("paced", room_id=room, count=load.paced, every_seconds=pace)
            figures.add_delays(pace, sent, bob.line())
        bob.tell("receive", since=cursor_of(bob), count=load.flood)
        spent = [cpu_seconds(process) for process in (alice, bob)]
        at = time.monotonic_ns()
        alice.tell("flood", room_id=room, count=load.flood, workers=WORKERS, quiet=True)
        arrived = bob.line()
        figures.rates.append(len(arrived) / ((max(arrived.values()) - at) / 1e9))
        alice.line()
        for process, before, into in zip((alice, bob), spent, (figures.send_us, figures.take_us), strict=True):
            into.append((cpu_seconds(process) - before) / len(arrived) * 1e6)
        figures.mib.append(psutil.Process(bob.process.pid).memory_info().rss / 2**20)
        for process in (alice, bob):
            process.end()


@contextmanager
def nats_server(port: int) -> Iterator[None]:
    """Run a NATS server."""
    with _server(["nats-server", "-a", "127.0.0.1", "-p", str(port)]):
        _until_open(port)
        yield


@contextmanager
def mosquitto_broker(port: int) -> Iterator[None]:
    """Run an MQTT broker that queues whatever comes."""
    with tempfile.TemporaryDirectory(prefix="sublet-bench-") as name:
        config = Path(name) / "mosquitto.conf"
        lines = (f"listener {port} 127.0.0.1", "allow_anonymous true", "max_queued_messages 0", "set_tcp_nodelay true")
        config.write_text("\n".join(lines))
        with _server(["mosquitto", "-c", str(config)]):
            _until_open(port)
            yield


@contextmanager
def pycrdt_server(port: int, refs: int = 0) -> Iterator[None]:
    """Serve a shared document with so many messages in it."""
    with _client("pycrdt-websocket", "serve", port, str(refs)):
        yield


def their(system: str, server: Callable[[int], Any], size: int, load: Load, figures: Figures) -> None:
    """Let two clients of another system talk, and add what was measured."""
    port = free_port()
    with server(port), _client(system, "receive", port) as bob, _client(system, "send", port) as alice:
        for part, pace in enumerate((*load.paces, 0), 1):
            numbers = {"first": part * OF_PART, "count": load.paced if pace else load.flood}
            _tell(bob, **numbers)
            _line(bob)
            _tell(alice, **numbers, every_seconds=pace, size=size)
            sent, told = _line(alice), _line(bob)
            if pace:
                figures.add_delays(pace, sent, told)
            else:
                figures.rates.append(load.flood / ((max(told.values()) - min(sent.values())) / 1e9))


@contextmanager
def _server(argv: list[str]) -> Iterator[None]:
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _client(system: str, role: str, port: int, *more: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, str(Path(__file__).with_name("_message_clients.py")), system, role, str(port), *more]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            _line(process)
            yield process
        finally:
            process.kill()


def _tell(process: subprocess.Popen[str], **command: object) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(command) + "\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def _until_open(port: int) -> None:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


def contenders(shared: int) -> tuple[dict[str, tuple[str, Callable[[int], Any]]], list[str]]:
    """Return the other systems that can be had here, by label, and what is said of those that can't."""
    found: dict[str, tuple[str, Callable[[int], Any]]] = {}
    missing: list[str] = []
    for system, server, library, program in (
        ("nats", nats_server, "nats", "nats-server"),
        ("mosquitto", mosquitto_broker, "paho", "mosquitto"),
        ("pycrdt-websocket", pycrdt_server, "pycrdt.websocket", None),
    ):
        if importlib.util.find_spec(library.partition(".")[0]) is None or importlib.util.find_spec(library) is None:
            missing.append(f"{system} is not measured: pip install -r benchmarks/requirements.txt")
        elif program is not None and shutil.which(program) is None:
            missing.append(f"{system} is not measured: there is no program {program}")
        else:
            found[system] = (system, server)
    if "pycrdt-websocket" in found:
        label = f"pycrdt-websocket, {shared:,} messages in the room"
        found[label] = ("pycrdt-websocket", lambda port: pycrdt_server(port, shared))
    return found, missing


def measure(
    wanted: Sequence[int], rounds: int, load: Load, shared: int, keep: Path | None
) -> tuple[list[Row], list[str]]:
    """Measure everything in turns; return the rows, and what could not be measured."""
    others, missing = contenders(shared)
    mine: dict[int, Figures] = {size: Figures() for size in wanted}
    theirs: dict[str, Figures] = {label: Figures() for label in others}
    with tempfile.TemporaryDirectory(prefix="sublet-bench-") as name:
        base = Path(name)
        alone, burst = rooms.bytes_of(base / "one", 1), rooms.bytes_of(base / "many", rooms.BURST)
        begun = time.monotonic()
        made = list(rooms.sizes(keep or base, list(wanted)))
        filled = time.monotonic() - begun
        for turn in range(rounds):
            for size, directory, room in made:
                if size == 0:  # it is empty in every turn
                    directory, room = base / f"empty-{turn}", ""
                    directory.mkdir()
                    room = rooms.begin(directory)
                ours(directory, room, load, mine[size])
            for label, (system, server) in others.items():
                their(system, server, round(alone), load, theirs[label])
    rows = [*_beside(mine[min(wanted)], theirs, load), *_flat(mine)]
    rows.append(Row("bytes of a message on the wire", alone, "B", f"in bursts {burst:.0f} B"))
    away = catching_up.MESSAGES if shared == SHARED_SIZE else catching_up.QUICK_MESSAGES
    with tempfile.TemporaryDirectory(prefix="sublet-bench-") as name:
        rows += catching_up.catch_up(Path(name) / "away", away)
    if max(wanted) and keep is None:
        rows.append(Row(f"filling a room with {max(wanted):,} messages", filled, "s", f"{max(wanted) / filled:,.0f}/s"))
    return rows, missing


def _beside(mine: Figures, theirs: dict[str, Figures], load: Load) -> list[Row]:
    rows: list[Row] = []
    for pace in load.paces:
        p50 = mine.p50(pace)
        met = p50 <= GOAL_P50_MS
        what = f"sent to seen, one every {pace * 1e3:g} ms, p50"
        rows.append(Row(what, p50, "ms", f"p99 {mine.p99(pace):.1f} ms", f"≤ {GOAL_P50_MS:g} ms", met))
        for label, figures in theirs.items():
            peer = f"{figures.p50(pace):.2f} ms (p99 {figures.p99(pace):.1f}), {label}"
            rows.append(Row(what, p50, "ms", peer=peer, ratio=p50 / figures.p50(pace)))
    for label, figures in theirs.items():
        peer = f"{figures.rate:,.0f}/s, {label}"
        rows.append(Row("messages a second", mine.rate, "/s", peer=peer, ratio=mine.rate / figures.rate))
    return rows


def _flat(mine: dict[int, Figures]) -> list[Row]:
    rows: list[Row] = []
    first, largest = mine[min(mine)], max(mine)
    for size, figures in mine.items():
        room = f"room of {size:,} messages"
        # Of the two in one turn, since a shared machine is faster at one time than at another.
        flat = statistics.median(rate / before for rate, before in zip(figures.rates, first.rates, strict=True))
        computed = _computed(figures)
        rows.append(
            Row(
                f"{room}: messages a second",
                figures.rate,
                "/s",
                f"{flat:.2f} of the smallest room, median of turns; "
                f"{statistics.median(figures.send_us):.0f} µs of a core to send and "
                f"{statistics.median(figures.take_us):.0f} µs to take in one, {_computed(first) / computed:.2f}",
                f"≥ {GOAL_RATE:,}/s, ≥ {GOAL_FLAT} of the smallest",
                figures.rate >= GOAL_RATE and flat >= GOAL_FLAT,
            )
        )
        pace = next(iter(figures.delays_ms))
        rows.append(Row(f"{room}: sent to seen, p50", figures.p50(pace), "ms", f"p99 {figures.p99(pace):.1f} ms"))
        start, mib = statistics.median(figures.starts), max(figures.mib)
        goal = f"≤ {GOAL_START_SECONDS:g} s, ≤ {GOAL_MIB} MiB" if size == largest else ""
        met = start <= GOAL_START_SECONDS and mib <= GOAL_MIB if goal else None
        rows.append(Row(f"{room}: start of a peer", start, "s", f"{mib:.0f} MiB after all this", goal, met))
    return rows


def _computed(figures: Figures) -> float:
    return statistics.median(figures.send_us) + statistics.median(figures.take_us)


def main() -> int:
    """Measure and show; return 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", help="messages in the room, from few to many")
    parser.add_argument("--rounds", type=int, help="how often everything is done, in turns")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the rooms here, once; with --rounds 0 only that")
    parser.add_argument("--quick", action="store_true", help="a little of everything, which says only that it works")
    add_options(parser)
    given = parser.parse_args()
    if given.rounds == 0 and given.keep is None:
        parser.error("--rounds 0 goes with --keep")
    sizes = given.sizes or (QUICK_SIZES if given.quick else SIZES)
    load = Load(paced=10, flood=320) if given.quick else Load(paced=150, flood=6_400)
    turns = given.rounds if given.rounds is not None else 1 if given.quick else ROUNDS
    shared = QUICK_SIZES[1] if given.quick else SHARED_SIZE
    if not turns:
        for size, directory, _ in rooms.sizes(given.keep, list(sizes)):
            print(f"{size:,} messages in {directory}")
        return 0
    rows, missing = measure(sizes, turns, load, shared, given.keep)
    show("messaging", rows, given)
    for line in missing:
        print(line, file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
