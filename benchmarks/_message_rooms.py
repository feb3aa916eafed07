"""Rooms of any size for ``messaging.py``, made on the real path: sent in bursts, signed, verified and kept twice."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.ports.outbox import Outgoing
from support.rooms import Clock, Peer, shared_room

BURST = 256
"""Messages of one commit; the engine puts 32 of them into an envelope."""
MAX_REFS = 4_000_000
AHEAD = 8
"""Bursts that may be on their way to the process that takes them in."""


def _clock() -> Clock:
    return Clock(time.time_ns() // 1_000_000)


def _peer(name: str, directory: Path) -> Peer:
    return Peer(name, time.time_ns() % 2**40, directory / f"{name}.db", clock=_clock())


def begin(directory: Path) -> str:
    """Make an empty room of Alice and Bob, and return its id."""
    alice, bob = _peer("alice", directory), _peer("bob", directory)
    alice.meet(bob)
    bob.meet(alice)
    room = shared_room(alice, bob)
    alice.do("room.update_config", room_id=room, changes={"timeline": {"max_refs_per_window": MAX_REFS}})
    bob.hear(alice.published())
    alice.store.close()
    bob.store.close()
    return room


def sizes(directory: Path, wanted: list[int]) -> Iterator[tuple[int, Path, str]]:
    """Yield rooms of these sizes, from few to many, each in a directory of its own: all are the first one, grown.

    What an earlier run has made there is taken as it is, with what was sent to it since.
    """
    room, before, there = "", 0, directory / "0"
    for size in sorted(wanted):
        here = directory / str(size)
        made = here / "room"
        if made.exists():
            room = made.read_text()
        else:
            shutil.rmtree(here, ignore_errors=True)
            if room:
                shutil.copytree(there, here, ignore=shutil.ignore_patterns("room"))
            else:
                here.mkdir(parents=True)
                room = begin(here)
            grow(here, room, size - before)
            made.write_text(room)
        before, there = size, here
        yield size, here, room


def grow(directory: Path, room: str, refs: int) -> None:
    """Let Alice send so many messages, while Bob takes them in, in a process of his own."""
    if not refs:
        return
    alice = _peer("alice", directory)
    with _taker(directory) as bob:
        on_their_way = 0
        for done in range(0, refs, BURST):
            alice.clock.now_ms = time.time_ns() // 1_000_000
            for index in range(done, min(done + BURST, refs)):
                run_operation(
                    alice.engine.registry.operations,
                    alice.engine.operating,
                    alice.id,
                    "message.send",
                    {"room_id": room, "body": f"filling {index}"},
                )
            alice.engine.commit()
            if on_their_way == AHEAD:
                bob.recv()
                on_their_way -= 1
            bob.send(alice.published())
            on_their_way += 1
        for _ in range(on_their_way):
            bob.recv()
    alice.store.close()


@contextmanager
def _taker(directory: Path) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_take, args=(directory, theirs))
    process.start()
    try:
        yield ours
        ours.send(None)
    finally:
        ours.close()
        process.join(60)


def _take(directory: Path, pipe: Connection) -> None:
    bob = _peer("bob", directory)
    while (burst := pipe.recv()) is not None:
        assert not bob.hear(burst).gaps
        pipe.send(True)
    bob.store.close()


def bytes_of(directory: Path, count: int) -> float:
    """Return how many bytes a message takes on the wire: key, envelope and content, of bursts of ``count``."""
    directory.mkdir()
    room = begin(directory)
    alice = _peer("alice", directory)
    for index in range(count):
        run_operation(
            alice.engine.registry.operations,
            alice.engine.operating,
            alice.id,
            "message.send",
            {"room_id": room, "body": f"a message of {index:06}"},
        )
    alice.engine.commit()
    out: list[Outgoing] = alice.published()
    alice.store.close()
    return sum(len(item.key) + len(item.payload) + len(item.attachment) for item in out) / count
