"""Large rooms, made quickly: what sending a message makes is made once by the engine, and all others after that one.

Each message has signatures of its own, each 32 of them an envelope, each shard its log, elements, contents, chain of
hashes and digest as the engine writes them (``tests/e2e/test_made_rooms.py`` compares tables row by row). Shards do not
build on each other, so processes make them side by side. What a daemon keeps of events alone is not made.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nacl.signing import SigningKey

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.documents.document import HEAD_BYTES, Document
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.mending.inspection import KnownKeys, inspect
from sublet.messaging.mending.trials import Trials
from sublet.messaging.ports.rows import Batch, EntryRow, LogRow, StagedUpdate
from sublet.messaging.quotas.usage import size_of
from sublet.messaging.schema.fields import Fields
from sublet.messaging.writing.writing import MAX_MERGED
from sublet.protocol.ezagent.content import FORMATS, canonical, content_object, sign_content, sign_ref
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.ids import own_ref_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.order import rank_of
from sublet.protocol.ezagent.shards import REFS_PER_SHARD, sub_shard
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.ezagent.yjs.update import ItemId
from sublet.protocol.times import rfc3339_of_ms
from support.rooms import Clock, Peer, shared_room

TOLD_EVERY = 100_000
ALL = (*BUILT_INS, *EXTENSIONS)
CHECKED_SHARDS = 4
"""Of a room that was made just now: worked out once more by the code that finds damage."""


@dataclass(frozen=True, slots=True)
class Shard:
    """What one shard is made of.

    Args:
        doc_id: the document.
        root: the name of its array.
        room: the room's id.
        author: who writes, by their id.
        seed: of the author's signing key.
        client: the author's client id.
        now_ms: when, Unix milliseconds.
        first: the number of the first message that is to be made.
        count: how many.
        clock: the client's next clock.
        left: the element before the first one, its rank, and the head of the chain; of an empty shard None each.
        fields: of a message that was sent.
    """

    doc_id: str
    root: str
    room: str
    author: str
    seed: bytes
    client: int
    now_ms: int
    first: int
    count: int
    clock: int
    left: tuple[ItemId | None, int | None, bytes | None]
    fields: Fields


@dataclass(slots=True)
class Burst:
    """Messages of one envelope: their elements, in order, and their contents by id."""

    log: LogRow
    entries: list[EntryRow]
    contents: dict[str, bytes]


def made_room(directory: Path, count: int, workers: int | None = None) -> Path:
    """Return a directory with a room of so many messages: Alice's database, and its id; made where it is missing.

    Bob is a member. Its database is the same one: a copy of it has what she has.
    """
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
    if count:
        fill(alice, room, count, workers)
        check(alice, room, count)
    alice.store.close()
    (made / "room").write_text(room)
    return made


def fill(peer: Peer, room: str, count: int, workers: int | None = None) -> None:
    """Let a peer write so many messages into a room that has none.

    Args:
        peer: who writes.
        room: a room of its own.
        count: how many.
        workers: processes that make them; as many as there are processors by default, none with 0.
    """
    store, made = peer.store, 1
    for settings in ("synchronous=OFF", "cache_size=-262144"):  # it is made anew where it is not whole
        store._db.execute(f"PRAGMA {settings}")
    fields = _first(peer, room)
    for shard, bursts in _bursts(_shards(peer, room, fields, count), workers):
        row = store.find_document(shard.doc_id) or store.document(shard.doc_id, room, "index")
        first, seq, batch = shard.clock == 0, store.last_seq(), Batch()
        for burst in bursts:
            seq += 1
            burst.log.seq = seq
            for entry in burst.entries:
                entry.seq = seq
            batch.updates.append(StagedUpdate(row, burst.log, peer.id, first, burst.entries))
            batch.contents.update({(row.number, name): raw for name, raw in burst.contents.items()})
            first = False
        usage, size = peer.engine.usage, sum(map(len, batch.contents.values())) + sum(map(size_of, batch.updates))
        usage.charge(room, peer.id, size)
        with store.transaction():
            store.write(batch)
            usage.save()
        if made // TOLD_EVERY != (made + shard.count) // TOLD_EVERY:
            print(f"made {made + shard.count:,} messages of {count:,}", file=sys.stderr, flush=True)
        made += shard.count
    peer.engine.forget()
    peer.engine.staging.reset()


def check(peer: Peer, room: str, count: int) -> None:
    """See that what was made is sound, by what finds damage in a daemon's database, and that it is all there."""
    rows, keys = peer.store.rows(), KnownKeys([peer.entity]).of([])
    shards = peer.store.documents(room, "index")
    assert sum(peer.store.count_entries(shard.number) for shard in shards) == count
    for shard in shards:
        why = rows.sums().why(shard)
        assert not why, why
    trials = Trials(lambda: Peer("alice", 1, declarations=ALL).engine)
    for shard in shards[:: max(1, len(shards) // CHECKED_SHARDS)]:
        found = inspect(rows, shard, keys, trials)
        assert not found.why, found.why
        assert not found.missing, found.missing
    trials.rest()
    wanted = [f"message {number}" for number in range(max(0, count - 200), count)]
    assert peer.bodies(room) == wanted


def _shards(peer: Peer, room: str, fields: Fields, count: int) -> Iterator[Shard]:
    """Yield what shards are made of: the rest of the one that has the first message, and those behind it."""
    first = peer.engine.documents.open(peer.engine.shards.for_new_ref(room))
    client, key, now_ms = peer.engine.keyring.client(peer.id), bytes(peer.entity.key), peer.clock.now_ms
    month, done = str(first.place.shard_id), 1
    for number in itertools.count():
        if done >= count:
            break
        now_ms += 1
        there, clock = (1, first.next_clock(client)) if number == 0 else (0, 0)
        left = _left(peer, first) if there else (None, None, None)
        more = min(REFS_PER_SHARD - there, count - done)
        name = doc_id("index", room_id=room, shard_id=sub_shard(month, number))
        yield Shard(name, first.root, room, peer.id, key, client, now_ms, done, more, clock, left, fields)
        done += more
    peer.clock.now_ms = now_ms + 1


def _left(peer: Peer, document: Document) -> tuple[ItemId | None, int | None, bytes | None]:
    tail = document.elements.chain.tail
    assert tail is not None
    return tail.id, tail.rank, peer.store.trust.head(document.row.number, peer.client)


def _bursts(shards: Iterator[Shard], workers: int | None) -> Iterator[tuple[Shard, list[Burst]]]:
    if workers == 0:
        yield from map(make, shards)
        return
    with multiprocessing.get_context("spawn").Pool(workers or os.cpu_count()) as pool:
        yield from pool.imap(make, shards)


def make(shard: Shard) -> tuple[Shard, list[Burst]]:
    """Return the envelopes of a shard, with what the store keeps of each."""
    key, (last, rank, head) = SigningKey(shard.seed), shard.left
    created, clock = rfc3339_of_ms(shard.now_ms), shard.clock
    bursts: list[Burst] = []
    for begin in range(shard.first, shard.first + shard.count, MAX_MERGED):
        transaction, entries = Transaction(shard.client, clock), list[EntryRow]()
        contents: dict[str, bytes] = {}
        for number in range(begin, min(begin + MAX_MERGED, shard.first + shard.count)):
            content = sign_content(content_object(shard.author, f"message {number}", FORMATS[0], created, []), key)
            ref_id, content_id = own_ref_id(shard.now_ms, shard.room, shard.author, number), str(content["content_id"])
            fields = copy.copy(shard.fields)
            fields |= {"ref_id": ref_id, "content_id": content_id, "created_at": created}
            fields["signature"] = sign_ref(shard.room, fields, key)
            contents[content_id] = canonical(content)
            at = transaction.clock
            [item] = transaction.append_maps(shard.root, last, [fields])
            rank = rank_of(ref_id, () if rank is None else (rank,))
            length = transaction.clock - at
            entries.append(EntryRow(shard.client, at, length, last, None, ref_id, shard.author, 0, True, rank))
            last = item
        payload, before = transaction.encode(), head
        envelope = seal(key, shard.author, shard.doc_id, shard.now_ms, payload)
        end = transaction.clock
        head = hashlib.sha256((head or b"") + end.to_bytes(4, "big") + payload).digest()[:HEAD_BYTES]
        bursts.append(Burst(LogRow(0, shard.client, clock, end, envelope.raw, head, before), entries, contents))
        clock = end
    return shard, bursts


def _first(peer: Peer, room: str) -> Fields:
    """Let a peer send a message as everybody does, and return the fields that it has got."""
    found: list[Fields] = []
    writing = peer.engine.writing
    add = writing._add

    def noting(entity: str, document: Document, fields: Fields, contents: dict[str, bytes]) -> None:
        found.append(dict(fields))
        add(entity, document, fields, contents)

    writing._add = noting  # type: ignore[method-assign]
    peer.do("message.send", room_id=room, body="message 0")
    writing._add = add  # type: ignore[method-assign]
    peer.published()
    return found[0]
