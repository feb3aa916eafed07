"""What members state that they hold of a room, taken on the engine's thread: whether it counts, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sublet.messaging.reconciling.roots import MAX_PASSED_ON, Theirs, signer_of_root
from sublet.messaging.syncing.asking import Answer
from sublet.messaging.syncing.differences import SyncParts
from sublet.messaging.syncing.doorkeeper import place_of
from sublet.protocol.ezagent.bundle import RecordKind, decode_bundle
from sublet.protocol.ezagent.errors import Refused, malformed
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.keys import doc_id


@dataclass(frozen=True, slots=True)
class Stated:
    """What a member has stated, and who it is.

    Args:
        theirs: its root.
        home: node id of its daemon; of several devices, of the one over whose link this came.
        differs: whether there may be something to take from it.
    """

    theirs: Theirs
    home: str
    differs: bool


def take_root(engine: SyncParts, room_id: RoomId, raw: bytes) -> Theirs | None:
    """Take what a member states that it has of a room; None where it is no such statement."""
    try:
        bundle = decode_bundle(raw)
        engine.intake.take_bundle(None, signer_of_root(bundle))
        statement = bundle.of(RecordKind.ROOT)
        if not statement:
            raise malformed("an answer without a root")
        theirs = engine.roots.take(room_id, statement[0])
    except Refused as refused:
        engine.intake.counts[refused.refusal] += 1
        return None
    for passed_on in statement[1 : 1 + MAX_PASSED_ON]:
        try:
            engine.roots.take(room_id, passed_on)
        except Refused as refused:
            engine.intake.counts[refused.refusal] += 1
    return theirs


def differs_at_asker(engine: SyncParts, key: str, body: bytes) -> RoomId | None:
    """Return the room of which somebody asks for our root and states another one; None where nothing is to be taken."""
    place = place_of(key)
    if place.kind != "root" or place.room_id is None or not body:
        return None
    theirs = take_root(engine, place.room_id, body)
    return place.room_id if theirs is not None and engine.roots.differs(place.room_id, theirs) else None


def stated_of(engine: SyncParts, room_id: RoomId, answer: Answer[bytes]) -> Stated | None:
    """Take what a member states; None where it does not count."""
    theirs = take_root(engine, room_id, answer.said)
    if theirs is None:
        return None
    is_device = answer.peer in engine.keyring.homes(theirs.entity)
    home = answer.peer if is_device else engine.keyring.home(theirs.entity)
    return Stated(theirs, home, engine.roots.differs(room_id, theirs))


def alike(engine: SyncParts, room_id: RoomId, members: Mapping[Answer[bytes], Stated]) -> frozenset[str]:
    """Return the daemons that have proven by their links whose they are, and have stated the root that is ours now."""
    root = engine.store.tree.root(room_id)
    return frozenset(
        answer.peer for answer, one in members.items() if answer.peer == one.home and root.same(one.theirs.node)
    )


def settle(engine: SyncParts, room_id: RoomId, theirs: Theirs, is_all: bool) -> None:
    """Note that all was taken of a member that could be, and look whether it is as much as it has signed."""
    engine.roots.settle(room_id, theirs)
    config = doc_id("config", room_id=room_id)
    if is_all and not engine.quotas.has_passed_over(room_id) and not engine.intake.gathering.clocks(config):
        engine.roots.shown(room_id, theirs)
