"""Messages between two real processes over Zenoh on the loopback, signed, verified, authorised and durable.

How fast one arrives, how many a second, and whether that stays so as the room grows (goals: p50 at most 2 ms, at least
2,000 messages a second, the rate in a large room at least 0.9 of that in an empty one).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from _report import Row, add_options, show

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from sublet.messaging.engine.operations import run_operation
from support.room_processes import RoomProcess, free_port, room_process
from support.rooms import Clock, Peer, shared_room

SIZES = (0, 10_000, 100_000)
FLOOD = 4_000
WORKERS = 32
PACED = 200
EVERY_SECONDS = 0.02
GOAL_P50_MS = 2.0
GOAL_RATE = 2_000
GOAL_FLAT = 0.9
BURST = 32


def fill(directory: Path, refs: int) -> str:
    """Return a room of Alice and Bob that holds so many refs, in a database for each of them."""
    clock = Clock(time.time_ns() // 1_000_000)
    alice = Peer("alice", 2**40 + 1, directory / "alice.db", clock=clock)
    bob = Peer("bob", 2**40 + 2, directory / "bob.db", clock=clock)
    alice.meet(bob)
    bob.meet(alice)
    room = shared_room(alice, bob)
    alice.do("room.update_config", room_id=room, changes={"timeline": {"max_refs_per_window": 2_000_000}})
    bob.hear(alice.published())
    for done in range(0, refs, BURST):
        for index in range(min(BURST, refs - done)):
            run_operation(alice.engine, alice.id, "message.send", {"room_id": room, "body": f"filling {done + index}"})
        alice.engine.commit()
        bob.hear(alice.published())
    alice.store.close()
    bob.store.close()
    return room


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value below which a part of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def cursor_of(process: RoomProcess) -> int:
    """Return the cursor of a process's last event."""
    since = 0
    while True:
        answer = process.ask("watch", since=since, wait_seconds=0.0)
        if answer["cursor"] == since:
            return since
        since = int(answer["cursor"])


def cpu_seconds(process: RoomProcess) -> float:
    """Return how long a process has computed, which other work on the machine changes little."""
    times = psutil.Process(process.process.pid).cpu_times()
    return float(times.user + times.system)


def measure(refs: int, rows: list[Row], rates: dict[int, float]) -> None:
    """Add the figures of a room of one size."""
    with tempfile.TemporaryDirectory(prefix="sublet-bench-") as name, ExitStack() as stack:
        directory = Path(name)
        room = fill(directory, refs)
        first, second = free_port(), free_port()
        begun = time.monotonic()
        alice = stack.enter_context(room_process("alice", directory, first))
        started = time.monotonic() - begun
        bob = stack.enter_context(room_process("bob", directory, second, first))
        bob.ask("sync", room_id=room)
        cursor = cursor_of(bob)

        bob.tell("receive", since=cursor, count=PACED)
        sent = alice.ask("paced", room_id=room, count=PACED, every_seconds=EVERY_SECONDS)
        told = bob.line()
        delays = [(told[ref] - at) / 1e6 for ref, at in sent.items()]

        cursor = cursor_of(bob)
        bob.tell("receive", since=cursor, count=FLOOD)
        spent = [cpu_seconds(process) for process in (alice, bob)]
        at = time.monotonic_ns()
        alice.tell("flood", room_id=room, count=FLOOD, workers=WORKERS, quiet=True)
        arrived = bob.line()
        rates[refs] = rate = FLOOD / ((max(arrived.values()) - at) / 1e9)
        sender, receiver = (
            (cpu_seconds(process) - before) / FLOOD * 1e6 for process, before in zip((alice, bob), spent, strict=True)
        )
        memory = psutil.Process(bob.process.pid).memory_info().rss / 2**20

        label = f"room of {refs:,} messages"
        p50, p99 = statistics.median(delays), percentile(delays, 0.99)
        rows.append(
            Row(
                f"{label}: sent to seen by the other, p50", p50, "ms", f"p99 {p99:.1f} ms", "≤ 2 ms", p50 <= GOAL_P50_MS
            )
        )
        flat = rate / rates[SIZES[0]]
        rows.append(
            Row(
                f"{label}: messages a second",
                rate,
                "/s",
                f"{flat:.2f} of an empty room; of a core {sender:.0f} µs to send, {receiver:.0f} µs to take in",
                "≥ 2,000/s, ≥ 0.9 of an empty room",
                rate >= GOAL_RATE and flat >= GOAL_FLAT,
            )
        )
        rows.append(Row(f"{label}: start of a peer", started, "s", f"{memory:.0f} MiB after all this"))


def main() -> int:
    """Measure and show; return 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=list(SIZES), help="messages in the room, from few to many"
    )
    add_options(parser)
    given = parser.parse_args()
    rows: list[Row] = []
    rates: dict[int, float] = {}
    for refs in given.sizes:
        measure(refs, rows, rates)
    show("messaging", rows, given)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
