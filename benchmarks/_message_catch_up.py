"""How long a member needs for what was written while it was away: many messages, of which half were edited since."""

from __future__ import annotations

import sqlite3
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psutil

from _message_rooms import MAX_REFS
from _report import Row
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.extensions import EXTENSIONS
from support.ports import free_port
from support.room_processes import RoomProcess, room_process
from support.rooms import Clock, Peer, shared_room

MESSAGES: Final = 10_000
QUICK_MESSAGES: Final = 40
GOAL_SECONDS: Final = 15.0
GIVE_UP_SECONDS: Final = 60.0
BURST: Final = 256
LOOK_SECONDS: Final = 0.05


def peer_of(name: str, path: Path | None) -> Peer:
    """Return an engine over a database, with all extensions and the time of now."""
    clock = Clock(time.time_ns() // 1_000_000)
    return Peer(name, time.time_ns() % 2**40, path, clock=clock, declarations=(*BUILT_INS, *EXTENSIONS))


def write(directory: Path, count: int, *more: str) -> str:
    """Let Alice write so many messages and edit each second one, while Bob, who is a member, knows of none.

    ``more`` are further members, who know of none as well.
    """
    alice, *others = [peer_of(name, directory / f"{name}.db") for name in ("alice", "bob", *more)]
    for one in (alice, *others):
        one.meet(*(other for other in (alice, *others) if other is not one))
    room = shared_room(alice, *others)
    alice.do("room.update_config", room_id=room, changes={"timeline": {"max_refs_per_window": MAX_REFS}})
    out = alice.published()
    for other in others:
        other.hear(out)
        other.store.close()
    operations = alice.engine.registry.operations
    refs: list[str] = []
    for begin in range(0, count, BURST):
        alice.clock.now_ms = time.time_ns() // 1_000_000
        for number in range(begin, min(begin + BURST, count)):
            sent = {"room_id": room, "body": f"written {number}"}
            refs.append(run_operation(operations, alice.engine.operating, alice.id, "message.send", sent)["ref_id"])
        alice.engine.commit()
        alice.published()
    for number, ref in enumerate(refs[::2]):
        edit = {"room_id": room, "ref_id": ref, "body": f"edited {number}"}
        run_operation(operations, alice.engine.operating, alice.id, "mutable.update", edit)
        if number % BURST == 0:
            alice.engine.commit()
            alice.published()
    alice.engine.commit()
    alice.store.close()
    return room


def catch_up(directory: Path, count: int = MESSAGES) -> list[Row]:
    """Return how long Bob needs until he shows what Alice shows, and the processor time of both."""
    directory.mkdir()
    room = write(directory, count)
    wanted = updates_in(directory / "alice.db")
    with ExitStack() as stack:
        first, second = free_port(), free_port()
        alice = stack.enter_context(room_process("alice", directory, first, extensions=True, pinned=True))
        spent = cpu_seconds(alice)
        began = time.monotonic()
        bob = stack.enter_context(room_process("bob", directory, second, first, extensions=True, pinned=True))
        while updates_in(directory / "bob.db") < wanted and time.monotonic() - began < GIVE_UP_SECONDS:
            time.sleep(LOOK_SECONDS)
        taken = time.monotonic() - began
        teller, taker = cpu_seconds(alice) - spent, cpu_seconds(bob)
        bodies = [[(ref["ref_id"], ref["body"]) for ref in peer.shown(room)] for peer in (alice, bob)]
        same = bodies[0] == bodies[1] and len(bodies[0]) == count
        lacking = sum(one != other for one, other in zip(*bodies, strict=False)) + abs(len(bodies[0]) - len(bodies[1]))
        detail = "" if same else f"and then {lacking:,} messages were still not as they should be"
        what = f"catching up {count:,} messages, half of them edited, from the start of the daemon"
        return [
            Row(what, taken, "s", detail, f"≤ {GOAL_SECONDS:g} s", same and taken <= GOAL_SECONDS),
            Row(
                "the same: processor time of both",
                teller + taker,
                "s",
                f"{teller:.1f} s of who tells, {taker:.1f} s of who takes",
            ),
        ]


def cpu_seconds(process: RoomProcess) -> float:
    """Return how long a process has computed, which other work on the machine changes little."""
    times = psutil.Process(process.process.pid).cpu_times()
    return float(times.user + times.system)


def updates_in(database: Path) -> int:
    """Return how many updates a member has."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        (count,) = db.execute("SELECT count(*) FROM log").fetchone()
    db.close()
    return int(count)
