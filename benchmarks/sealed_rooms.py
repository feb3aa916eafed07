"""Messages between two processes in a room that is sealed for its members, beside one that is not, in the same run.

    python benchmarks/sealed_rooms.py [--messages N] [--rounds N] [--json]

Two members in processes of their own have two rooms over one link of the bus, one of them sealed. In each round one
member sends ``--messages`` messages into one room and then into the other, first the sealed one in every second round,
and the other member takes them. A rate counts from the first message that is sent to the last one that is told.
Exit status 1 where the goal is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from _report import Row, add_options, show

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.ports import free_port
from support.room_processes import RoomProcess, room_process

GOAL = 0.85
WORKERS = 32


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000, help="sent into a room in a round")
    parser.add_argument("--rounds", type=int, default=6)
    add_options(parser)
    options = parser.parse_args()
    port = free_port()
    with (
        tempfile.TemporaryDirectory() as directory,
        room_process("alice", Path(directory), port, pinned=False) as alice,
        room_process("bob", Path(directory), free_port(), port) as bob,
    ):
        rooms = {"plain": _room(alice, bob), "sealed": _room(alice, bob)}
        alice.ask("room.update_config", room_id=rooms["sealed"], changes={"encryption": "members"})
        while bob.ask("room.get", room_id=rooms["sealed"])["config"]["encryption"] != "members":
            time.sleep(0.1)
        rates: dict[str, list[float]] = {name: [] for name in rooms}
        for number in range(options.rounds):
            for name in sorted(rooms, reverse=bool(number % 2)):
                rates[name].append(_rate(alice, bob, rooms[name], options.messages))
    plain, sealed = statistics.median(rates["plain"]), statistics.median(rates["sealed"])
    detail = f"median of {options.rounds} rounds of {options.messages:,} messages"
    ratio = sealed / plain
    row = Row("messages in a sealed room", sealed, "/s", detail, f"≥ {GOAL}", ratio >= GOAL, f"{plain:,.0f} /s", ratio)
    show("sealed_rooms", [row], options)
    return 0 if ratio >= GOAL else 1


def _room(alice: RoomProcess, bob: RoomProcess) -> str:
    room: str = alice.ask("room.create", name="r", invite=[bob.id])["room_id"]
    while room not in [one["room_id"] for one in bob.ask("room.list")]:
        time.sleep(0.1)
    return room


def _rate(alice: RoomProcess, bob: RoomProcess, room: str, count: int) -> float:
    """Return how many messages a second come from one member to the other."""
    since = 0
    while (page := bob.ask("watch", since=since, wait_seconds=0.0))["events"]:
        since = page["cursor"]
    bob.tell("receive", room_id=room, since=max(since, page["cursor"]), count=count)
    begun = time.monotonic()
    alice.ask("flood", room_id=room, count=count, workers=WORKERS, quiet=True)
    bob.line()
    return count / (time.monotonic() - begun)


if __name__ == "__main__":
    sys.exit(main())
