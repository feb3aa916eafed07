"""Probes of purging: what a flood of tombstones costs and keeps, and what looking for remains costs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from attacks.probe import CostProbe, FailureProbe, KeptProbe
from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.backends.remains import drop_kept, files_beside, holds
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.opening.open_documents import MAX_OPEN_DOCUMENTS
from sublet.protocol.ezagent import keys
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.ids import own_ref_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.times import rfc3339_of_ms
from support.purge_kills import erasing, finished, make, opened
from support.rooms import NOW_MS, Peer, peers, shared_room

AT = rfc3339_of_ms(NOW_MS)


def tombstones(by: Peer, room: str, count: int, author: Peer) -> list[Arrival]:
    """Return tombstones of as many messages, which nobody has sent."""
    made: list[Arrival] = []
    for number in range(count):
        name = doc_id("purge", room_id=room, ref_id=own_ref_id(NOW_MS + number, room, author.id, number))
        transaction = Transaction(by.client, 0)
        transaction.set_key("purge", "message", None, AT)
        made.append(Arrival(seal(by.entity.key, by.id, name, NOW_MS, transaction.encode()).raw))
    return made


def _sent(number: int) -> tuple[Peer, list[Arrival]]:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, *EXTENSIONS))
    room = shared_room(alice, bob)
    return alice, tombstones(bob, room, number, bob)


def _take(given: tuple[Peer, list[Arrival]]) -> None:
    peer, arrivals = given
    peer.engine.intake.take(arrivals)
    peer.engine.commit()


def _changed(number: int) -> tuple[Peer, Peer, str]:
    alice, arrivals = _sent(number)
    _take((alice, arrivals))
    (room,) = alice.engine.here.ids
    bob = next(one for one in alice.engine.rooms.state(room).members() if one != alice.id)
    for remembered in (keys._doc_id, keys._parsed):  # at both sizes, or what is remembered holds n and not 2n
        remembered.cache_clear()
    return alice, alice, f"{room} {bob}"


def _kick(given: tuple[Peer, Peer, str]) -> None:
    alice, _, named = given
    room, bob = named.split()
    alice.do("room.kick", room_id=room, entity=bob)


@contextmanager
def _flooded() -> Iterator[object]:
    alice, bob, carol = peers("alice", "bob", "carol", declarations=(*BUILT_INS, *EXTENSIONS))
    room = shared_room(alice, bob, carol)
    for signer in (bob, carol):  # of what is one's own, and of what is another's
        _take((alice, tombstones(signer, room, 600, bob)))
    try:
        yield alice
    finally:
        alice.store.close()


def _file(size: int) -> Path:
    with tempfile.NamedTemporaryFile(delete=False) as made:
        made.write(b'"body":"ezagent/' * (size // 16))
    return Path(made.name)


def _look(path: Path) -> None:
    assert not holds(path, {bytes(32)})
    path.unlink()


async def _cut_off() -> None:
    """Have a database that others read, and copies that can't be read; nothing of that keeps a purge from ending."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "home"
        room, ref = make(place)
        (place / "messaging.db.v9").mkdir()
        (place / "messaging-lost.db").write_bytes(b"no database")
        peer = opened(place, 5)
        peer.do("purge.message", room_id=room, ref_id=ref)
        await finished(peer)
        with anyio.move_on_after(0.01):  # nothing is left to do, so it waits
            await erasing(peer).run()
        drop_kept(place / "messaging.db", ["ezagent/x"])
        assert files_beside(place / "messaging.db")
        assert not holds(place / "messaging.db.v9", {bytes(32)})
        peer.store.close()


PROBES = (
    CostProbe(
        name="rooms: tombstones that arrive",
        covers=[
            "protocol.ezagent.purge:check_tombstone",
            "messaging.purging.purges:Purges.landed",
            "messaging.purging.purges:Purges.settle",
        ],
        make=_sent,
        run=_take,
        size=64,
    ),
    CostProbe(
        name="rooms: somebody is removed who has purged much",
        covers=["messaging.purging.purges:Purges.reconsider"],
        make=_changed,
        run=_kick,
        size=2 * MAX_OPEN_DOCUMENTS,  # beyond what is kept open, at both sizes
    ),
    CostProbe(
        name="rooms: a file is looked through for what was erased",
        covers=["messaging.backends.remains:holds", "messaging.backends.remains:_marks_in"],
        make=_file,
        run=_look,
        size=64 << 10,
    ),
    KeptProbe(
        name="rooms: a flood of tombstones",
        covers=["messaging.backends.sqlite_purges:SqlitePurges.put"],
        attack=_flooded,
        bound=16 << 20,
        left=4 << 20,
    ),
    FailureProbe(
        name="rooms: copies of the database that can't be read while something is purged",
        covers=[
            "messaging.backends.remains:drop_kept",
            "messaging.backends.remains:holds",
            "messaging.erasing.erasing:Erasing._settle",
            "messaging.erasing.erasing:Erasing.everything",
            "messaging.erasing.erasing:Erasing.run",
            "messaging.erasing.erasing:_drop_copies",
            "messaging.purging.purges:Purges.run",
        ],
        throw=_cut_off,
    ),
)
