"""What members that mean harm do to honest ones: catching up and the way of a message, beside them and without them."""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from _message_catch_up import peer_of, updates_in, write
from _report import Row

GOAL_RATIO: Final = 2.0
GOAL_HELD_MIB: Final = 8.0
GIVE_UP_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.02
PACED: Final = 60
PACE_SECONDS: Final = 0.02
REST_SECONDS: Final = 5.0
ROLES: Final = {
    "silent": "takes questions and answers none",
    "junk": "answers with junk",
    "mute": "says what it has, and answers nothing when it is compared with",
    "rooms": "has made rooms with both in them",
    "forger": "publishes messages that no schema takes, and such in the other's name",
    "declarer": "declares 60,000 places where it would hear",
    "reader": "reads nothing of what is published",
}
FORCED: Final = 520
"""Rooms that somebody has brought both into without a yes."""


class _Process:
    """One of them, spoken to in lines."""

    def __init__(self, role: str, name: str, directory: Path) -> None:
        argv = [sys.executable, str(Path(__file__).with_name("_bus_process.py")), role, name, str(directory)]
        self.name = name
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.port = int(self.line()["port"])

    def line(self) -> dict[str, Any]:
        """Return its next answer."""
        assert self.process.stdout is not None
        while not (said := self.process.stdout.readline()).startswith("{"):
            assert said, f"{self.name} has ended"
        answer: dict[str, Any] = json.loads(said)
        return answer

    def tell(self, **command: object) -> None:
        """Give a command, without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def ask(self, **command: object) -> Any:
        """Give a command and return its answer."""
        self.tell(**command)
        answer = self.line()
        assert "error" not in answer, answer
        return answer.get("result", answer)

    def resident(self) -> float:
        """Return the memory that it takes, MiB."""
        return float(psutil.Process(self.process.pid).memory_info().rss) / 2**20


@contextmanager
def _process(role: str, name: str, directory: Path) -> Iterator[_Process]:
    one = _Process(role, name, directory)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()


class _Turn:
    """What was measured of one turn."""

    def __init__(self, made: Path, room: str, role: str | None) -> None:
        with tempfile.TemporaryDirectory(prefix="sublet-bench-") as name, ExitStack() as stack:
            place = Path(name) / "d"
            shutil.copytree(made, place)
            wanted = updates_in(place / "alice.db")
            here = [stack.enter_context(_process("member", "alice", place))]
            if role is not None:
                if role == "rooms":
                    shutil.copy(place / "forced.db", place / "eve.db")
                here.append(stack.enter_context(_process(role, "eve", place)))
            begun = time.monotonic()
            bob = stack.enter_context(_process("member", "bob", place))
            all_of_them = [*here, bob]
            for one in all_of_them:
                others = {other.name: other.port for other in all_of_them if other is not one}
                one.tell(others=others, room=room)
            for one in all_of_them:
                one.line()
            if role == "reader":
                here[1].process.send_signal(signal.SIGSTOP)
            while updates_in(place / "bob.db") < wanted and time.monotonic() - begun < GIVE_UP_SECONDS:
                time.sleep(LOOK_SECONDS)
            self.caught_up = time.monotonic() - begun
            before = bob.resident()
            cursor = int(bob.ask(do="watch", since=0, wait_seconds=0.0)["cursor"])
            while (answer := bob.ask(do="watch", since=cursor, wait_seconds=0.0))["cursor"] != cursor:
                cursor = int(answer["cursor"])
            bob.tell(do="receive", since=cursor, count=PACED)
            sent = here[0].ask(do="paced", room_id=room, count=PACED, every_seconds=PACE_SECONDS)
            told = bob.line()
            self.delay_ms = statistics.median((told[key] - at) / 1e6 for key, at in sent.items())
            if role is not None:
                here[1].process.kill()
            time.sleep(REST_SECONDS if role is not None else 0)
            self.held_mib = bob.resident() - before


def force(scratch: Path) -> None:
    """Let Eve make rooms with Alice and Bob in them, in a database of her own."""
    shutil.copy(scratch / "eve.db", scratch / "forced.db")
    eve, *others = peer_of("eve", scratch / "forced.db"), peer_of("alice", None), peer_of("bob", None)
    eve.meet(*others)
    for number in range(FORCED):
        eve.do("room.create", name=f"forced {number}", invite=[other.id for other in others])
        eve.published()
    eve.store.close()


def beside_villains(scratch: Path, count: int, rounds: int) -> list[Row]:
    """Measure each kind of villain in turns with a turn without one; the middle of the turns counts."""
    scratch.mkdir()
    room = write(scratch, count, "eve")
    force(scratch)
    quiet: list[_Turn] = []
    turns: dict[str, list[_Turn]] = {role: [] for role in ROLES}
    for _ in range(rounds):
        quiet.append(_Turn(scratch, room, None))
        for role, found in turns.items():
            found.append(_Turn(scratch, room, role))
    alone = statistics.median(turn.caught_up for turn in quiet)
    alone_ms = statistics.median(turn.delay_ms for turn in quiet)
    goal = f"≤ {GOAL_RATIO:g} times as long as without"
    rows: list[Row] = []
    for role, found in turns.items():
        took = statistics.median(turn.caught_up for turn in found)
        delay = statistics.median(turn.delay_ms for turn in found)
        held = statistics.median(turn.held_mib for turn in found)
        what = f"beside a member that {ROLES[role]}"
        met = took <= GOAL_RATIO * alone
        rows += [
            Row(f"{what}: catching up {count:,} messages", took, "s", "", goal, met, f"{alone:.2f} s", took / alone),
            Row(
                f"{what}: sent to seen, p50",
                delay,
                "ms",
                "",
                goal,
                delay <= GOAL_RATIO * alone_ms,
                f"{alone_ms:.2f} ms",
                delay / alone_ms,
            ),
            Row(f"{what}: memory still held", held, "MiB", "", f"≤ {GOAL_HELD_MIB:g}", held <= GOAL_HELD_MIB),
        ]
    return rows
