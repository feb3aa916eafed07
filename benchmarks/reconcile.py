"""Two members of one large room: what it costs to find out that nothing differs, and to find and fetch what does.

    python benchmarks/reconcile.py [--messages N] [--documents N] [--catch-up N] [--beside N] [--rounds N]
            [--rooms DIRECTORY] [--json] [--markdown]

A room of ``--messages`` messages is made once (kept in ``--rooms``) and copied. Both members run whole services that
meet in memory: what they ask and answer is signed, sealed and counted in bytes. One of them annotates 100 messages all
over the room while the link is cut. Of ``--documents`` documents, as of a room where each message was edited, the
digest trees alone are made and compared. Then, in processes of their own over real links, a daemon's messaging starts
over the large room, a member catches up ``--catch-up`` messages of which half were edited, and one catches up
``--beside`` such messages beside members that mean harm, in ``--rounds`` turns with one without any.
Exit status 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import anyio
import psutil

from _report import Row, add_options, show

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from _beside_villains import beside_villains
from _made_rooms import made_room
from _message_catch_up import catch_up, cpu_seconds
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.ports.rows import LogRow, StagedUpdate
from sublet.messaging.reconciling.exchange import Exchange, below, differing
from sublet.messaging.reconciling.logs import RoomTree
from sublet.protocol.ezagent.reconciliation import (
    NodesAsked,
    decode_asked,
    decode_differing,
    encode_differing,
    encode_nodes,
)
from support.members import Member, member
from support.memory_network import MemoryHub
from support.ports import free_port
from support.room_processes import room_process

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "rooms"
DIFFERENCES = 100
BYTES_GOAL = 100_000
SECONDS_GOAL = 2.0
START_GOAL = 2.0
MIB_GOAL = 300
ROOM = "01a2212b-1000-7167-9394-011daa814786"


class Counted:
    """What a member asks, and what comes back."""

    def __init__(self, one: Member) -> None:
        self.questions = self.size = 0
        query = one.network.query

        def counting(key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
            answers = query(key, payload, timeout_seconds)
            self.questions += 1
            self.size += len(key) + len(payload) + sum(map(len, answers))
            return answers

        one.network.query = counting  # type: ignore[method-assign, assignment]

    def clear(self) -> None:
        """Count from now on."""
        self.questions = self.size = 0


def main() -> int:
    """Measure, print, and tell by the status whether all goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--catch-up", type=int, default=10_000)
    parser.add_argument("--beside", type=int, default=1_000, help="messages to catch up beside members that mean harm")
    parser.add_argument("--rounds", type=int, default=3, help="how often that is done, in turns")
    parser.add_argument("--rooms", type=Path, default=CACHE, help="keeps the large room for the next run")
    add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sublet-bench-") as name:
        rows = trees(options.documents)
        made = made_room(options.rooms, options.messages)
        rows += anyio.run(reconciled, made, Path(name), options.messages)
        rows += started(made, options.messages)
        if options.catch_up:
            rows += catch_up(Path(name) / "away", options.catch_up)
        if options.beside:
            rows += beside_villains(Path(name) / "beside", options.beside, options.rounds)
    show("reconcile", rows, options)
    return 0 if all(row.met is not False for row in rows) else 1


def trees(count: int) -> list[Row]:
    """Compare two digest trees of so many documents, of which some differ."""
    ours, theirs = SqliteStore(None), SqliteStore(None)
    for store in (ours, theirs):
        with store.transaction():
            began = time.perf_counter()
            store.tree.changed([_update(store, number, 1) for number in range(count)])
            took = time.perf_counter() - began
    with theirs.transaction():
        changed = [_update(theirs, number, 2) for number in Random(0).sample(range(count), DIFFERENCES)]
        theirs.tree.changed(changed)
    began = time.perf_counter()
    exchange, salt = Exchange(Random(0)), bytes(8)
    mine, other = RoomTree(ours, ROOM), RoomTree(theirs, ROOM)
    named = size = questions = 0
    while asked := exchange.next():
        question = encode_nodes(NodesAsked(salt, tuple(below(mine, prefix, salt) for prefix in asked)))
        heard = decode_asked(question)
        assert isinstance(heard, NodesAsked)
        answer = encode_differing([differing(other, one, salt) for one in heard.below])
        named += len(exchange.told(asked, decode_differing(answer, len(asked))))
        exchange.progressed()
        size, questions = size + len(question) + len(answer), questions + 1
    assert named == DIFFERENCES
    seconds = time.perf_counter() - began
    return [
        Row(f"a leaf of {count:,}, written", took / count * 1e6, "us"),
        Row(
            f"{DIFFERENCES} of {count:,} documents differ: named by",
            size / 1000,
            "KB",
            f"{questions} questions, {seconds * 1000:.0f} ms of both sides",
            f"≤ {BYTES_GOAL / 1000:.0f} KB",
            size <= BYTES_GOAL,
        ),
    ]


def _update(store: SqliteStore, number: int, clock: int) -> StagedUpdate:
    row = store.document(f"ezagent/{ROOM}/content/{number}", ROOM, "content")
    head, before = bytes([clock]) * 16, bytes([clock - 1]) * 16
    return StagedUpdate(
        row, LogRow(number + 1, 1, clock - 1, clock, b"", head, before if clock > 1 else None), "", False
    )


@asynccontextmanager
async def both(path: Path, hub: MemoryHub) -> AsyncIterator[tuple[Member, Member]]:
    """Run Alice and Bob over the databases in ``path``."""
    async with AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(member(name, time.time_ns() % 2**40 + number, hub, path, more=EXTENSIONS))
            for number, name in enumerate(("alice", "bob"))
        ]
        yield found[0], found[1]


async def root_of(one: Member, room: str) -> tuple[int, int]:
    """Return the root of a member's tree."""
    node = await one.service.on_engine(lambda engine: engine.store.tree.root(room))
    return node.count, node.digest


async def alike(one: Member, other: Member, room: str) -> None:
    """Let a member reconcile a room until it has what the other one has."""
    while await root_of(one, room) != await root_of(other, room):
        await one.service.asking.room(room)


async def reconciled(made: Path, scratch: Path, count: int) -> list[Row]:
    """Let two members of a room of so many messages find out what differs."""
    room = (made / "room").read_text()
    for name in ("alice", "bob"):
        shutil.copy(made / "alice.db", scratch / f"{name}.db")
    hub = MemoryHub()
    async with both(scratch, hub) as (alice, bob):
        await alike(bob, alice, room)
        counted = Counted(bob)
        began = time.perf_counter()
        await bob.service.asking.room(room)
        equal, size, questions = time.perf_counter() - began, counted.size, counted.questions
        refs = await alice.service.on_engine(
            lambda engine: [
                entry_id
                for (entry_id,) in engine.store._db.execute("SELECT entry_id FROM entries ORDER BY entry_id")  # type: ignore[attr-defined]
            ]
        )
        hub.cut(alice.network, bob.network)
        for ref in Random(0).sample(refs, DIFFERENCES):
            await alice.bus.reactions.add(room_id=room, ref_id=ref, emoji="👍")
        counted.clear()
        hub._cut.clear()  # the link is there again, and nobody is told
        began = time.perf_counter()
        await alike(bob, alice, room)
        took = time.perf_counter() - began
        differences, asked = counted.size, counted.questions
    return [
        Row(
            f"{count:,} messages, equal: one look takes",
            size / 1000,
            "KB",
            f"{questions} questions, {equal * 1000:.0f} ms",
        ),
        Row(
            f"{count:,} messages, {DIFFERENCES} differ: found and fetched by",
            differences / 1000,
            "KB",
            f"{asked} questions",
            f"≤ {BYTES_GOAL / 1000:.0f} KB",
            differences <= BYTES_GOAL,
        ),
        Row("the same, until both are equal", took, "s", "", f"≤ {SECONDS_GOAL:.0f} s", took <= SECONDS_GOAL),
    ]


def started(made: Path, count: int) -> list[Row]:
    """Start a daemon's messaging over such a room, and look at what that takes."""
    with tempfile.TemporaryDirectory(prefix="sublet-bench-") as name:
        place = Path(name)
        shutil.copy(made / "alice.db", place / "alice.db")
        begun = time.monotonic()
        with room_process("alice", place, free_port(), extensions=True, pinned=True) as alice:
            took = time.monotonic() - begun
            spent, mib = cpu_seconds(alice), psutil.Process(alice.process.pid).memory_info().rss / 2**20
    detail = f"{spent:.2f} s of processor, {mib:.0f} MiB"
    met = took <= START_GOAL and mib <= MIB_GOAL
    return [Row(f"{count:,} messages: start", took, "s", detail, f"≤ {START_GOAL:g} s, ≤ {MIB_GOAL} MiB", met)]


if __name__ == "__main__":
    sys.exit(main())
