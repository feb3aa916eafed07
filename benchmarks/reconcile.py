"""Two members of one large room: what it costs to find out that nothing differs, and to find and fetch what does.

    python benchmarks/reconcile.py [--messages N] [--documents N] [--catch-up N] [--rooms DIRECTORY]
            [--json] [--markdown]

A room of ``--messages`` messages is made once (kept in ``--rooms``, if given) and copied. Both members run whole
services that meet in memory: what they ask and answer is signed, sealed and counted in bytes. One of them annotates 100
messages all over the room while the link is cut. Of ``--documents`` documents, as of a room where each message was
edited, the digest trees alone are made and compared. And one member catches up ``--catch-up`` messages, half of them
edited.
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

from _report import Row, add_options, show

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.operations import run_operation
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
from support.rooms import Clock, Peer, shared_room

ALL = (*BUILT_INS, *EXTENSIONS)
BURST = 256
DIFFERENCES = 100
BYTES_GOAL = 100_000
SECONDS_GOAL = 2.0
CATCH_UP_GOAL = 15.0
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

        one.network.query = counting  # type: ignore[method-assign]

    def clear(self) -> None:
        """Count from now on."""
        self.questions = self.size = 0


def main() -> int:
    """Measure, print, and tell by the status whether all goals are met."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--catch-up", type=int, default=10_000)
    parser.add_argument("--rooms", type=Path, help="keeps the large room for the next run")
    add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sublet-bench-") as name:
        rows = trees(options.documents)
        made = made_room(options.rooms or Path(name) / "rooms", options.messages)
        rows += anyio.run(reconciled, made, Path(name), options.messages)
        rows += anyio.run(caught_up, Path(name), options.catch_up)
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


def made_room(directory: Path, count: int) -> Path:
    """Return a directory with a room of so many messages: Alice's database, and its id."""
    made = directory / str(count)
    if (made / "room").exists():
        return made
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    alice = Peer("alice", time.time_ns() % 2**40, made / "alice.db", ALL, Clock(time.time_ns() // 1_000_000))
    bob = Peer("bob", 1, declarations=ALL)
    alice.meet(bob)
    bob.meet(alice)
    room = shared_room(alice, bob)
    alice.do("room.update_config", room_id=room, changes={"timeline": {"max_refs_per_window": 4 * count + 1_000}})
    for done in range(0, count, BURST):
        alice.clock.now_ms = time.time_ns() // 1_000_000
        for number in range(done, min(done + BURST, count)):
            arguments = {"room_id": room, "body": f"message {number}"}
            operations = alice.engine.registry.operations
            run_operation(operations, alice.engine.operating, alice.id, "message.send", arguments)
        alice.engine.commit()
        alice.published()
    alice.store.close()
    (made / "room").write_text(room)
    return made


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


async def caught_up(scratch: Path, count: int) -> list[Row]:
    """Let a member catch up so many messages, half of which were edited."""
    (path := scratch / "catching").mkdir()
    hub = MemoryHub()
    async with both(path, hub) as (alice, bob):
        room = (await alice.bus.room.create(name="r", invite=[bob.id]))["room_id"]
        while not await bob.bus.room.list():
            await anyio.sleep(0.02)
        hub.cut(alice.network, bob.network)
        for number in range(count):
            ref = (await alice.bus.message.send(room_id=room, body=f"message {number}"))["ref_id"]
            if number % 2:
                await alice.bus.mutable.update(room_id=room, ref_id=ref, body=f"edited {number}")
        hub._cut.clear()
        began = time.perf_counter()
        await alike(bob, alice, room)
        took = time.perf_counter() - began
    met = took <= CATCH_UP_GOAL
    return [
        Row(f"{count:,} messages, half of them edited: caught up in", took, "s", "", f"≤ {CATCH_UP_GOAL:.0f} s", met)
    ]


if __name__ == "__main__":
    sys.exit(main())
