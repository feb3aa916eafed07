"""Signed heads: members state what they have of a room, which shows forks and rollbacks (DESIGN 6.8, 9.11).

Rules: only a member's statement counts, an older one says nothing, and one from the future is refused. A fork is a
reason to have less; going back is told otherwise. Weak: a statement holds a bounded number of documents and clients, so
in a large room the oldest months are not compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from sublet.messaging.events.events import Events
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.opening.shards import TimelineShards
from sublet.messaging.ports.rows import DocumentRow, HeadRow
from sublet.messaging.ports.store import Store
from sublet.messaging.rooms.here import RoomsHere
from sublet.protocol.ezagent.bundle import RecordKind, encode_bundle
from sublet.protocol.ezagent.envelope import Envelope, seal, unpack, verify
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.heads import (
    MAX_HEAD_CLIENTS,
    MAX_HEAD_DOCUMENTS,
    Head,
    Heads,
    decode_heads,
    encode_heads,
)
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.shards import month, previous_month

ROLLED_BACK_EVENT: Final = "room.rolled_back"
MAX_AHEAD_MS: Final = 300_000
"""How far ahead of ours a peer's clock may be; a statement from further ahead would shut out all later ones."""

MAX_AHEAD_SHARDS: Final = 16
"""Shards of months to come that are told of."""
MAX_CHANGING: Final = 32
"""Contents of each kind that are told of, and asked for."""

log = structlog.get_logger(__name__)


def changing(store: Store, room_id: RoomId) -> list[DocumentRow]:
    """Return contents of a room that change, the newest ones, of which a lost update shows as no gap."""
    return [row for kind in ("content", "acl", "blob_ref") for row in store.documents(room_id, kind)[-MAX_CHANGING:]]


class HeadExchange:
    """Makes our statement of a room, and compares those of others with what is here.

    Args:
        store: what is here, and what peers have said before.
        keyring: whose key is whose.
        here: who is a member.
        shards: which months are told of.
        events: what is told of who goes back.
        now_ms: the clock, Unix milliseconds.
    """

    def __init__(
        self,
        store: Store,
        keyring: Keyring,
        here: RoomsHere,
        shards: TimelineShards,
        events: Events,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._keyring = keyring
        self._here = here
        self._shards = shards
        self._events = events
        self._now_ms = now_ms

    def statement(self, room_id: RoomId) -> bytes | None:
        """Return what we have of a room, signed by one of ours who is a member; None where none is."""
        member = next((entity for entity in self._keyring.local if self._here.is_member(entity, room_id)), None)
        if member is None:
            return None
        payload = encode_heads(self._ours(room_id))
        name = doc_id("heads", room_id=room_id)
        envelope = seal(self._keyring.key(member), member, name, self._now_ms(), payload)
        record = self._keyring.local[member].record.encode()
        return encode_bundle([(RecordKind.IDENTITY, record), (RecordKind.HEADS, envelope.raw)])

    def alike(self, room_id: RoomId, raw: bytes) -> dict[str, bool]:
        """Return of which documents a member tells, and whether it has exactly what is here.

        Raises:
            Refused: it is malformed, or no member has signed it.
        """
        found: dict[str, bool] = {}
        for part, theirs in decode_heads(self._checked(room_id, raw).payload).items():
            row = self._store.find_document(f"ezagent/{room_id}/{part}")
            found[f"ezagent/{room_id}/{part}"] = row is not None and self._store.trust.heads(row.number) == theirs
        return found

    def compare(self, room_id: RoomId, raw: bytes) -> dict[str, set[int]]:
        """Return, by document, clients of which a member holds another history than we do.

        Raises:
            Refused: it is malformed, or no member has signed it.
        """
        envelope = self._checked(room_id, raw)
        theirs = decode_heads(envelope.payload)
        self._keep(room_id, envelope, theirs)
        found: dict[str, set[int]] = {}
        for part, clients in theirs.items():
            row = self._store.find_document(f"ezagent/{room_id}/{part}")
            if row is None:
                continue
            ours = self._store.trust.heads(row.number)
            for client, head in clients.items():
                if ours.get(client) != head and self._differs(row, client, head):
                    found.setdefault(row.doc_id, set()).add(client)
        return found

    def _checked(self, room_id: RoomId, raw: bytes) -> Envelope:
        envelope = unpack(raw)
        if envelope.doc_id != doc_id("heads", room_id=room_id):
            raise malformed("heads of something else")
        if envelope.timestamp_ms > self._now_ms() + MAX_AHEAD_MS:
            raise malformed("heads from the future")
        keys = self._keyring.keys(envelope.signer)
        if keys is None or not self._here.is_member(envelope.signer, room_id):
            raise Refused(Refusal.UNKNOWN_SIGNER, "heads of somebody who is no member")
        verify(envelope, keys)
        return envelope

    def _differs(self, row: DocumentRow, client: int, head: Head) -> bool:
        """Tell whether a client's history up to a clock is another one here; no where it does not reach that far."""
        trust = self._store.trust
        if trust.update_at(row.number, client, head.clock - 1) is None:
            return False
        return trust.head(row.number, client, head.clock) != head.hash

    def _keep(self, room_id: RoomId, envelope: Envelope, theirs: Heads) -> None:
        """Keep what a member says last, and tell where it has gone back behind what it said before."""
        signer = envelope.signer
        before = self._store.trust.heads_of(room_id).get(signer)
        if before is not None and before.at_ms >= envelope.timestamp_ms:
            return
        lost = self._lost(room_id, signer, before, theirs) if before is not None else None
        with self._store.transaction():
            self._store.trust.put_heads(room_id, signer, HeadRow(envelope.timestamp_ms, envelope.raw))
            if lost is not None:
                log.warning("a peer has less of a room than it had", signer=signer, document=lost)
                self._events.tell(ROLLED_BACK_EVENT, room_id, {"room_id": room_id, "entity": signer, "document": lost})
            events = self._events.write()
        self._events.publish(events)

    def _lost(self, room_id: RoomId, signer: EntityId, before: HeadRow, now: Heads) -> str | None:
        """Return a document of which a member has less than it said before; a fork is a reason to have less."""
        for part, clients in decode_heads(unpack(before.raw).payload).items():
            row = self._store.find_document(f"ezagent/{room_id}/{part}")
            forked = {fork.client for fork in self._store.trust.forks(row.number)} if row is not None else set()
            there = now.get(part)
            if there is None:
                continue  # a month that is over
            for client, head in clients.items():
                if client not in forked and (client not in there or there[client].clock < head.clock):
                    return f"ezagent/{room_id}/{part}"
        return None

    def _ours(self, room_id: RoomId) -> Heads:
        found, left = dict[str, dict[int, Head]](), MAX_HEAD_CLIENTS
        this = self._shards.current_month()
        rows = self._store.documents(room_id, "config") + self._store.documents(room_id, "ext")
        shards = list(reversed(self._store.documents(room_id, "index")))
        rows += [row for row in shards if previous_month(this) <= month(row.doc_id.rpartition("/")[2]) <= this]
        # Clocks that differ begin months to come; few, so that they take no place of those of now.
        rows += [row for row in shards if month(row.doc_id.rpartition("/")[2]) > this][-MAX_AHEAD_SHARDS:]
        rows += changing(self._store, room_id)
        for row in rows[:MAX_HEAD_DOCUMENTS]:
            clients = self._store.trust.heads(row.number)
            left -= len(clients)
            if left < 0:
                break
            found[row.doc_id.split("/", 2)[2]] = clients
        return found
