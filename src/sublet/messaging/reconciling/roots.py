"""Signed roots: members state what they have of a room as one digest (DESIGN 9.11).

Rules: only a member's statement counts, and one from the future is refused. What contradicts what a member said
before, or shows, is told (``contradictions``). Where the asker's root differs from ours, those that others have signed
are passed on with it. With whom everything that can be taken was taken, nothing more is asked until one of both roots
is another one. Weak: what somebody holds who is no member any more is in no root here. Of an entity with several
devices no root is held against another one: each device has what it has, and a statement does
not tell which one has made it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from sublet.messaging.events.events import Events
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.ports.store import Store
from sublet.messaging.reconciling.contradictions import Contradictions, Signed
from sublet.messaging.rooms.here import RoomsHere
from sublet.protocol.ezagent.bundle import Bundle, RecordKind, decode_bundle, encode_bundle
from sublet.protocol.ezagent.digest_tree import Node
from sublet.protocol.ezagent.envelope import Envelope, seal, unpack, verify
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.reconciliation import decode_root, encode_root

MAX_AHEAD_MS: Final = 300_000
"""How far ahead of ours a peer's clock may be; a statement from further ahead would shut out all later ones."""
MAX_SETTLED: Final = 16_384
"""Pairs of roots that are remembered, of members and rooms; of more, one is compared once more than it had to be."""
MAX_PASSED_ON: Final = 8
"""Roots of others that go with ours, the newest; about 400 bytes each."""


@dataclass(frozen=True, slots=True)
class Theirs:
    """What a member has signed that it has of a room."""

    entity: EntityId
    node: Node


class Roots:
    """Makes our statement of a room, and takes those of others.

    Args:
        store: what is here, and what members have said before.
        keyring: whose key is whose.
        here: who is a member.
        events: what is told of who goes back.
        now_ms: the clock, Unix milliseconds.
    """

    def __init__(
        self, store: Store, keyring: Keyring, here: RoomsHere, events: Events, now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._keyring = keyring
        self._here = here
        self._events = events
        self._now_ms = now_ms
        self._settled: dict[tuple[RoomId, EntityId], tuple[Node, Node]] = {}
        self.contradictions = Contradictions(events)

    def speaker(self, room_id: RoomId) -> EntityId | None:
        """Return who of ours states what we have of a room, and is asked about it; None where none is a member."""
        return next((entity for entity in self._keyring.local if self._here.is_member(entity, room_id)), None)

    def statement(self, room_id: RoomId, asked_with: bytes = b"") -> bytes | None:
        """Return what we have of a room, signed; None where none of ours is a member, or it is not summed up yet.

        Args:
            room_id: the room.
            asked_with: what the asker states; where that differs, what others have signed goes along.
        """
        member = self.speaker(room_id)
        if member is None or not self._store.tree.is_built:
            return None
        root = self._store.tree.root(room_id)
        name = doc_id("root", room_id=room_id)
        envelope = seal(self._keyring.key(member), member, name, self._now_ms(), encode_root(root))
        record = self._keyring.local[member].record.encode()
        others = self._of_others(room_id, asked_with, root) if asked_with else []
        return encode_bundle(
            [(RecordKind.IDENTITY, record), *((RecordKind.ROOT, raw) for raw in (envelope.raw, *others))]
        )

    def _of_others(self, room_id: RoomId, asked_with: bytes, ours: Node) -> list[bytes]:
        try:
            stated = decode_bundle(asked_with).of(RecordKind.ROOT)
            asker = unpack(stated[0]) if stated else None
            if asker is None or ours.same(decode_root(asker.payload)):
                return []
        except Refused:
            return []
        said = self._store.tree.said(room_id)
        newest = sorted((at_ms, raw) for entity, (at_ms, raw) in said.items() if entity != asker.signer)
        return [raw for _, raw in newest[-MAX_PASSED_ON:]]

    def take(self, room_id: RoomId, raw: bytes) -> Theirs:
        """Take what a member has signed, and tell where it has gone back behind what it said before.

        Raises:
            Refused: it is malformed, or no member has signed it.
        """
        envelope = self._checked(room_id, raw)
        theirs = Theirs(envelope.signer, decode_root(envelope.payload))
        self._keep(room_id, envelope, theirs)
        return theirs

    def differs(self, room_id: RoomId, theirs: Theirs) -> bool:
        """Tell whether there may be something to take from a member."""
        ours = self._store.tree.root(room_id)
        return not ours.same(theirs.node) and self._settled.get((room_id, theirs.entity)) != (ours, theirs.node)

    def settle(self, room_id: RoomId, theirs: Theirs) -> None:
        """Note that all was taken that a member with this root has and we could take."""
        if len(self._settled) >= MAX_SETTLED:
            del self._settled[next(iter(self._settled))]
        self._settled[room_id, theirs.entity] = self._store.tree.root(room_id), theirs.node

    def shown(self, room_id: RoomId, theirs: Theirs) -> None:
        """Note that all that a member shows was taken, and tell where that is less than it has signed."""
        if self._keyring.has_several(theirs.entity):
            return
        ours = self._store.tree.root(room_id)
        with self._store.transaction():
            self.contradictions.shown(room_id, theirs.entity, theirs.node, ours)
            events = self._events.write()
        self._events.publish(events)

    def _checked(self, room_id: RoomId, raw: bytes) -> Envelope:
        envelope = unpack(raw)
        if envelope.doc_id != doc_id("root", room_id=room_id):
            raise malformed("a root of something else")
        if envelope.timestamp_ms > self._now_ms() + MAX_AHEAD_MS:
            raise malformed("a root from the future")
        keys = self._keyring.speaking(envelope.signer)
        if keys is None or not self._here.is_member(envelope.signer, room_id):
            raise Refused(Refusal.UNKNOWN_SIGNER, "a root of somebody who is no member")
        verify(envelope, keys)
        return envelope

    def _keep(self, room_id: RoomId, envelope: Envelope, theirs: Theirs) -> None:
        if theirs.entity in self._keyring.local:
            return  # what we have signed before, passed on
        if self._keyring.has_several(theirs.entity):
            return
        before = self._store.tree.said(room_id).get(theirs.entity)
        now = Signed(envelope.timestamp_ms, theirs.node)
        said = Signed(before[0], decode_root(unpack(before[1]).payload)) if before is not None else None
        is_newer = said is None or said.at_ms < now.at_ms
        if is_newer:
            ours = partial(self._store.tree.root, room_id)
            self.contradictions.stated(room_id, theirs.entity, now.node, ours)
        if said is not None and said.node == now.node:
            return
        with self._store.transaction():
            if is_newer:
                self._store.tree.put_said(room_id, theirs.entity, now.at_ms, envelope.raw)
            if said is not None:
                self.contradictions.compare(room_id, theirs.entity, said, now)
            events = self._events.write()
        self._events.publish(events)


def signer_of_root(bundle: Bundle) -> Bundle:
    """Return the record of the one member who has signed a root, and nothing else of the answer."""
    return Bundle(tuple((RecordKind.IDENTITY, raw) for raw in bundle.of(RecordKind.IDENTITY)[:1]))
