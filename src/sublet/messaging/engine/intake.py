"""The hot path: unpack, decode strictly, drop duplicates, verify, hold gaps, authorise, commit in a group, apply.

Everything runs on the engine's one thread. Nothing changes in memory before it is known to be good, and nothing is told
before it is durable; a commit that fails forgets the open documents, which are read again from what is durable.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sublet.messaging.engine.authorise import refuse_forbidden
from sublet.messaging.engine.backend import Batch, DeletionRow, EntryRow, LogRow, StagedUpdate, WriteRow
from sublet.messaging.engine.contexts import Happened
from sublet.messaging.engine.declaration import Change, Datatype
from sublet.messaging.engine.document import Document, NewEntry, NewWrite, Plan, encoded
from sublet.protocol.ezagent.bundle import Bundle, RecordKind
from sublet.protocol.ezagent.content import parse_content
from sublet.protocol.ezagent.envelope import Envelope, unpack, verify
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId, is_client_of
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.model import Update

if TYPE_CHECKING:
    from sublet.messaging.engine.engine import Engine

MAX_UNKNOWN_SIGNERS: Final = 256
MAX_WAITING_FOR_KEYS: Final = 1_024
MAX_DIGESTS: Final = 4_096


@dataclass(frozen=True, slots=True)
class Arrival:
    """An envelope that came from the wire, with the contents that came along."""

    envelope: bytes
    contents: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Outcome:
    """What came of a batch: which documents have gaps, whose keys are wanted, and what was refused."""

    accepted: int = 0
    gaps: set[str] = field(default_factory=set)
    unknown_signers: set[EntityId] = field(default_factory=set)

    def add(self, other: Outcome) -> None:
        """Add what came of another batch."""
        self.accepted += other.accepted
        self.gaps |= other.gaps
        self.unknown_signers |= other.unknown_signers


@dataclass(slots=True)
class _Accepted:
    document: Document
    envelope: Envelope
    client: int
    plan: Plan
    local: bool
    seq: int


class Intake:
    """Takes updates, from the wire and from here.

    Args:
        engine: what it is a part of.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._batch = Batch()
        self._accepted: list[_Accepted] = []
        self._seq = engine.store.last_seq()
        self._waiting: dict[EntityId, list[Arrival]] = {}
        self._deletes_seen: dict[bytes, None] = {}
        self.staged: dict[int, Update] = {}
        """Updates that were accepted and are not in the store yet, by their number in the log."""
        self.counts: Counter[str] = Counter()
        """How many updates were accepted, duplicates, held, and refused by reason."""

    def take(self, arrivals: Sequence[Arrival]) -> Outcome:
        """Take what came from the wire, commit it, and let the hooks know.

        Args:
            arrivals: in the order in which they came; those of a closed document may be in any order.
        """
        outcome = Outcome()
        for arrival in arrivals:
            self._one(arrival, outcome)
        outcome.accepted = len(self._accepted)
        self.commit()
        return outcome

    def take_bundle(self, room_id: RoomId | None, bundle: Bundle) -> Outcome:
        """Take what a peer has answered: who its signers are, the log beyond ours, and contents."""
        outcome = Outcome()
        for raw in bundle.of(RecordKind.IDENTITY):
            try:
                outcome.add(self.learn(raw))
            except Refused as refused:
                self.counts[refused.refusal] += 1
        self._take_contents(room_id, bundle.of(RecordKind.CONTENT))
        outcome.add(self.take([Arrival(raw) for raw in bundle.of(RecordKind.ENVELOPE)]))
        return outcome

    def learn(self, raw: bytes) -> Outcome:
        """Take an identity record; what waited for it is taken now.

        Raises:
            Refused: the record does not prove itself.
        """
        record = self._engine.keyring.learn(raw)
        if record is None:
            return Outcome()
        self._batch.records[record.entity_id] = raw
        return self.take(self._waiting.pop(record.entity_id, []))

    def local(self, document: Document, envelope: Envelope, update: Update, contents: dict[str, bytes]) -> None:
        """Take an update that was made here; durable after ``commit``.

        Args:
            document: what it changes.
            envelope: which holds it.
            update: the same, decoded.
            contents: immutable contents that go with it, by id.

        Raises:
            Refused: it is not allowed.
        """
        plan = document.plan(update)
        refuse_forbidden(self._engine.datatype_of(document), document, envelope.signer, plan)
        self._stage(document, envelope, update, plan, local=True)
        if document.place.room_id is not None:
            for content_id, raw in contents.items():
                self._batch.contents[document.place.room_id, content_id] = raw

    def stages(self, document: Document) -> bool:
        """Tell whether something of a document is accepted and not yet durable."""
        return any(done.document is document for done in self._accepted)

    def commit(self) -> None:
        """Make everything that was accepted durable, with what the hooks make of it, in one transaction.

        Raises:
            Exception: the store could not; nothing of it is kept.
        """
        if not self._batch:
            return
        engine, store = self._engine, self._engine.store
        batch, self._batch = self._batch, Batch()
        accepted, self._accepted = self._accepted, []
        try:
            with store.transaction():
                store.write(batch)
                self._tell(accepted)
                events = engine.events.write()
        except Exception:
            self.staged.clear()
            engine.forget()
            self._seq = store.last_seq()
            raise
        self.staged.clear()
        for done in accepted:
            done.document.staged_writes.clear()
        engine.events.publish(events)
        came = frozenset(
            (done.document.row.room_id, done.document.room_part, done.client)
            for done in accepted
            if not done.local and done.document.row.room_id is not None
        )
        if came:
            for listener in engine.arrival_listeners:
                listener(came)

    def _one(self, arrival: Arrival, outcome: Outcome) -> None:
        try:
            envelope = unpack(arrival.envelope)
            document = self._engine.wanted_document(envelope.doc_id)
            update = decode_update(envelope.payload)
            if document.known(update):
                self.counts["duplicate"] += 1
                self._take_contents(document.place.room_id, arrival.contents)
                return
            if not self._knows_signer(envelope, arrival, outcome):
                return
            self._take_contents(document.place.room_id, arrival.contents)
            self._received(document, envelope, update, outcome)
        except Refused as refused:
            self.counts[refused.refusal] += 1

    def _received(self, document: Document, envelope: Envelope, update: Update, outcome: Outcome) -> None:
        digest = hashlib.sha256(envelope.signed).digest()
        if not update.items and digest in self._deletes_seen:
            self.counts["duplicate"] += 1
            return
        self._check_client(document, envelope, update)
        if document.missing(update):
            document.hold(digest, envelope, update)
            self.counts["held"] += 1
            outcome.gaps.add(document.row.doc_id)
            return
        self._accept(document, envelope, update)
        while document.held and (ready := document.release()):
            for held in ready:
                try:
                    if not document.known(held.update):
                        self._check_client(document, held.envelope, held.update)
                        self._accept(document, held.envelope, held.update)
                except Refused as refused:
                    self.counts[refused.refusal] += 1

    def _accept(self, document: Document, envelope: Envelope, update: Update) -> None:
        plan = document.plan(update)
        refuse_forbidden(self._engine.datatype_of(document), document, envelope.signer, plan)
        self._stage(document, envelope, update, plan, local=False)
        self.counts["accepted"] += 1
        if not update.items:
            self._deletes_seen[hashlib.sha256(envelope.signed).digest()] = None
            while len(self._deletes_seen) > MAX_DIGESTS:
                del self._deletes_seen[next(iter(self._deletes_seen))]

    def _knows_signer(self, envelope: Envelope, arrival: Arrival, outcome: Outcome) -> bool:
        """Verify the signature; where nobody's key is known yet, keep the envelope until it is."""
        keys = self._engine.keyring.keys(envelope.signer)
        if keys is not None:
            verify(envelope, keys)
            return True
        self.counts[Refusal.UNKNOWN_SIGNER] += 1
        if envelope.signer in self._waiting or len(self._waiting) < MAX_UNKNOWN_SIGNERS:
            waiting = self._waiting.setdefault(envelope.signer, [])
            if len(waiting) < MAX_WAITING_FOR_KEYS:
                waiting.append(arrival)
            outcome.unknown_signers.add(envelope.signer)
        return False

    def _check_client(self, document: Document, envelope: Envelope, update: Update) -> None:
        """Refuse a client id that another entity wrote with first, and clocks that were used before."""
        if not update.items:
            return
        bound = document.clients.get(update.client)
        if bound is None:
            if not is_client_of(update.client, envelope.signer):
                raise Refused(Refusal.FOREIGN_CLIENT, "a client id that is not the signer's")
            return
        if bound[1] != envelope.signer:
            raise Refused(Refusal.FOREIGN_CLIENT, "a client id of another entity")
        if update.start < bound[0]:
            raise Refused(Refusal.WRONG_SHAPE, "clocks that were used before")

    def _take_contents(self, room_id: RoomId | None, contents: Sequence[bytes]) -> None:
        if room_id is None:
            return
        for raw in contents:
            try:
                content = parse_content(raw)
            except Refused as refused:
                self.counts[refused.refusal] += 1
                continue
            self._batch.contents[room_id, str(content["content_id"])] = raw

    def _stage(self, document: Document, envelope: Envelope, update: Update, plan: Plan, *, local: bool) -> None:
        self._seq += 1
        signer, client = envelope.signer, update.client
        log = LogRow(self._seq, client if update.items else None, update.start, update.end, envelope.raw)
        staged = StagedUpdate(document.row, log, signer, bool(update.items) and client not in document.clients)
        shown = document.place.kind == "index" and self._shown(document, signer, update)
        staged.entries = [self._entry(document, signer, client, entry, shown) for entry in plan.entries]
        staged.writes = [self._write(signer, client, write) for write in plan.writes]
        datatype = self._engine.datatype_of(document)
        if datatype is not None and datatype.latest_only:
            staged.superseded = [write.origin for write in staged.writes if write.origin is not None]
        staged.deletions = [DeletionRow(cut, signer) for cut in update.deletions]
        document.accept(update, signer, staged.entries)
        for write in staged.writes:
            document.staged_writes[write.client, write.clock] = write
        self._batch.updates.append(staged)
        self.staged[self._seq] = update
        self._accepted.append(_Accepted(document, envelope, client, plan, local, self._seq))

    def _shown(self, document: Document, signer: EntityId, update: Update) -> bool:
        room_id = document.place.room_id
        return room_id is not None and self._engine.rooms.counts(
            room_id, signer, document.room_part, (update.client, update.start)
        )

    def _entry(self, document: Document, signer: EntityId, client: int, entry: NewEntry, shown: bool) -> EntryRow:
        datatype = self._engine.datatype_of(document)
        name = datatype.entry_id if datatype is not None else "ref_id"
        item = entry.item
        return EntryRow(
            client,
            item.clock,
            entry.length,
            item.origin,
            item.right,
            str(entry.fields[name]),
            signer,
            self._seq,
            shown,
        )

    def _write(self, signer: EntityId, client: int, write: NewWrite) -> WriteRow:
        item, located = write.item, write.located
        return WriteRow(
            client,
            item.clock,
            located.entry,
            located.container,
            located.path[-1],
            item.origin,
            item.right,
            signer,
            self._seq,
            None if write.makes_map else encoded(write.value),
        )

    def _tell(self, accepted: Sequence[_Accepted]) -> None:
        """Run the hooks; the config first, since it decides what else counts."""
        configs = [done for done in accepted if done.document.place.kind == "config"]
        for room_id in {done.document.place.room_id: None for done in configs}:
            if room_id is not None:
                of_room = [done for done in configs if done.document.place.room_id == room_id]
                last = of_room[-1]
                self._engine.config_changed(room_id, last.envelope.signer, last.seq, local=last.local)
        for done in accepted:
            if done.document.place.kind != "config":
                for change in self._changes(done):
                    self._engine.hooks.after_write(self._engine, change)

    def _changes(self, done: _Accepted) -> list[Happened]:
        document, signer = done.document, done.envelope.signer
        datatype = self._engine.datatype_of(document)
        if datatype is None or not self._engine.hooks.watched(datatype.id):
            return []
        name = datatype.entry_id
        found = [
            self._happened(
                done, datatype, entry.item.clock, Change.INSERT, str(entry.fields[name]), fields=entry.fields
            )
            for entry in done.plan.entries
        ]
        for write in done.plan.writes:
            node = document.list.nodes.get(write.located.entry) if write.located.entry is not None else None
            entry_id = node.entry_id if node is not None else None
            path, value = write.located.path, write.value
            found.append(
                self._happened(done, datatype, write.item.clock, Change.UPDATE, entry_id, path=path, value=value)
            )
        room_id, part = document.place.room_id, document.room_part
        if room_id is None:
            return found
        return [change for change in found if self._engine.rooms.counts(room_id, signer, part, change.item)]

    def _happened(
        self,
        done: _Accepted,
        datatype: Datatype,
        clock: int,
        event: Change,
        entry_id: str | None,
        *,
        fields: dict[str, object] | None = None,
        path: tuple[str, ...] = (),
        value: object = None,
    ) -> Happened:
        row = done.document.row
        item = (done.client, clock)
        return Happened(
            datatype.id,
            event,
            row.doc_id,
            row.room_id,
            done.envelope.signer,
            item,
            entry_id,
            fields or {},
            path,
            value,
            done.local,
            seq=done.seq,
        )
