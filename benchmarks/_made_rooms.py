"""Large rooms, made quickly: what an operation and its hooks make is made once, and each message of it by hand.

All behind that is the engine's own: messages are appended, signed in envelopes of 32, planned, staged, committed with
their hooks, indexes and events, and summed up in the digest tree.
"""

from __future__ import annotations

import copy
import shutil
import sys
import time
from pathlib import Path

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.documents.document import Document
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.schema.fields import Fields
from sublet.messaging.writing.writing import MAX_MERGED
from sublet.protocol.ezagent.content import FORMATS, canonical, content_object, sign_content, sign_ref
from sublet.protocol.ezagent.ids import own_ref_id
from sublet.protocol.times import rfc3339_of_ms
from support.rooms import Clock, Peer, shared_room

BURST = 32 * MAX_MERGED
"""Messages of one commit."""
TOLD_EVERY = 100_000
ALL = (*BUILT_INS, *EXTENSIONS)


def made_room(directory: Path, count: int) -> Path:
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
        fill(alice, room, count)
    alice.store.close()
    (made / "room").write_text(room)
    return made


def fill(peer: Peer, room: str, count: int) -> None:
    """Let a peer write so many messages into a room."""
    template = _first(peer, room)
    engine, key = peer.engine, peer.entity.key
    for done in range(1, count, BURST):
        peer.clock.now_ms = max(peer.clock.now_ms + 1, time.time_ns() // 1_000_000)
        now_ms, created = peer.clock.now_ms, rfc3339_of_ms(peer.clock.now_ms)
        for number in range(done, min(done + BURST, count)):
            content = sign_content(content_object(peer.id, f"message {number}", FORMATS[0], created, []), key)
            fields = copy.copy(template)
            fields |= {
                "ref_id": own_ref_id(now_ms, room, peer.id, number),
                "content_id": content["content_id"],
                "created_at": created,
            }
            fields["signature"] = sign_ref(room, fields, key)
            document = engine.documents.open(engine.shards.for_new_ref(room))
            engine.writing._add(peer.id, document, fields, {str(content["content_id"]): canonical(content)})
        engine.commit()
        peer.published()
        if done // TOLD_EVERY != (done - BURST) // TOLD_EVERY:
            print(f"made {done:,} messages of {count:,}", file=sys.stderr, flush=True)


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
