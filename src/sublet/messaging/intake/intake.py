"""The hot path: unpack, decode strictly, drop duplicates, verify, hold gaps, authorise, commit in a group, apply.

Everything runs on the engine's one thread. Nothing changes in memory before it is known to be good, and nothing is told
before it is durable; a commit that fails forgets the open documents, which are read again from what is durable.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sublet.messaging.accepting.accepted import Accepted, entry_row, tell, write_row
from sublet.messaging.accepting.arrival import Arrival, ArrivalReport
from sublet.messaging.accepting.config_gathering import ConfigGathering
from sublet.messaging.documents.document import Document
from sublet.messaging.documents.plan import Plan
from sublet.messaging.intake.offers import Offers
from sublet.messaging.intake.waiting import WaitingForKeys
from sublet.messaging.ports.store import Batch, DeletionRow, LogRow, StagedUpdate
from sublet.messaging.quotas.usage import size_of
from sublet.messaging.reading.authorise import refuse_forbidden
from sublet.messaging.trust.forks import Forks
from sublet.protocol.ezagent.bundle import Bundle, RecordKind
from sublet.protocol.ezagent.envelope import Envelope, unpack, verify
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId, is_client_of
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.model import Update

if TYPE_CHECKING:
    from sublet.messaging.engine.engine import Engine

_PASSING: Final = "/ephemeral/"
MAX_DIGESTS: Final = 4_096


class Intake:
    """Takes updates, from the wire and from here.

    Args:
        engine: what it is a part of.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.counts: Counter[str] = Counter()
        """How many updates were accepted, duplicates, held, and refused by reason."""
        self._batch = Batch()
        self._accepted: list[Accepted] = []
        self._seq = engine.store.last_seq()
        self.waiting = WaitingForKeys()
        """Of members."""
        self.strangers = WaitingForKeys()
        self._offers = Offers(self.counts)
        self._deferred: list[Arrival] = []
        self._deletes_seen: dict[bytes, None] = {}
        self.forks = Forks(engine)
        self.gathering = ConfigGathering(engine)
        self.staged: dict[int, Update] = {}
        """Updates that were accepted and are not in the store yet, by their number in the log."""

    def take(self, arrivals: Sequence[Arrival]) -> ArrivalReport:
        """Take what came from the wire, commit it, and let the hooks know.

        Args:
            arrivals: in the order in which they came; those of a closed document may be in any order.
        """
        outcome = ArrivalReport()
        for arrival in arrivals:
            self._one(arrival, outcome)
        due, refused = self.gathering.due()
        for arrival in due:
            self._one(arrival, outcome)
        outcome.gaps |= refused
        outcome.accepted = len(self._accepted)
        self.commit()
        deferred, self._deferred = self._deferred, []
        if deferred:  # what came along may have let their signers in
            outcome.add(self.take(deferred))
        outcome.gaps |= self.forks.learn()
        return outcome

    def take_due(self) -> ArrivalReport:
        """Take what has waited long enough."""
        return self.take(())

    def take_again(self, envelopes: Sequence[bytes]) -> None:
        """Take what was held in a document that was read anew."""
        self.take([Arrival(raw) for raw in envelopes])

    def replay(self, name: str, rows: Sequence[tuple[int, bytes]]) -> None:
        """Take accepted updates of a document once more, by their numbers in the log, and tell nobody."""
        document = self._engine.document(name)
        for seq, raw in rows:
            envelope = unpack(raw)
            update = decode_update(envelope.payload)
            try:
                plan = document.plan(update)
                refuse_forbidden(self._engine.datatype_of(document), document, envelope.signer, plan)
            except Refused as refused:
                self.counts[refused.refusal] += 1
                continue
            self._stage(document, envelope, update, plan, seq, local=False)
        batch, self._batch = self._batch, Batch()
        self._engine.store.write(batch)
        for staged in batch.updates:  # they were counted when they came
            self._engine.usage.charge(document.place.room_id, staged.signer, -size_of(staged))
        self._accepted.clear()
        self.staged.clear()
        document.staged_writes.clear()

    def envelope_at(self, document: Document, client: int, clock: int) -> bytes | None:
        """Return the accepted envelope in which a client wrote a clock of a document."""
        number = document.row.number
        for staged in self._batch.updates:
            row = staged.log
            if staged.document.number == number and row.client == client and row.start <= clock < row.end:
                return row.envelope
        return self._engine.store.trust.update_at(number, client, clock)

    def reset(self) -> None:
        """Go back to what is durable, after a transaction that failed."""
        self._batch = Batch()
        self._accepted.clear()
        self._deferred.clear()
        self.staged.clear()
        self.gathering.committed()
        self._engine.forget()
        self._seq = self._engine.store.last_seq()

    def take_bundle(self, room_id: RoomId | None, bundle: Bundle) -> ArrivalReport:
        """Take what a peer has answered: who its signers are, the log beyond ours, and contents."""
        outcome = ArrivalReport()
        for raw in bundle.of(RecordKind.IDENTITY):
            try:
                outcome.add(self.learn(raw))
            except Refused as refused:
                self.counts[refused.refusal] += 1
        for raw in bundle.of(RecordKind.FORK):
            try:
                self.forks.take_proof(raw)
            except Refused as refused:
                self.counts[refused.refusal] += 1
        with self._offers.along(bundle.of(RecordKind.CONTENT) if room_id is not None else ()):
            outcome.add(self.take([Arrival(raw) for raw in bundle.of(RecordKind.ENVELOPE)]))
        return outcome

    def learn(self, raw: bytes) -> ArrivalReport:
        """Take an identity record; what waited for it is taken now.

        Raises:
            Refused: the record does not prove itself.
        """
        record = self._engine.keyring.learn(raw, self._is_wanted)
        if record is None:
            return ArrivalReport()
        self._batch.records[record.entity_id] = raw
        return self.take([*self.waiting.release(record.entity_id), *self.strangers.release(record.entity_id)])

    def _is_wanted(self, entity: EntityId) -> bool:
        """Tell whether an entity's record is wanted, however many of strangers are here."""
        return entity in self.waiting or entity in self.strangers or self._engine.meets(entity)

    def local(self, document: Document, envelope: Envelope, update: Update, contents: dict[str, bytes]) -> None:
        """Take an update that was made here; durable after ``commit``.

        Args:
            document: what it changes.
            envelope: which holds it.
            update: the same, decoded.
            contents: immutable contents that go with it, by id.

        Raises:
            Refused: it is not allowed, or its clocks are not the next ones: nothing of ours ever forks.
        """
        if update.items and update.start != document.next_clock(update.client):
            raise Refused(Refusal.EQUIVOCATION, "other clocks than the next ones")
        if not document.clients:
            self._engine.quotas.may_begin(document.place, envelope.signer)
        plan = document.plan(update)
        refuse_forbidden(self._engine.datatype_of(document), document, envelope.signer, plan)
        self._stage(document, envelope, update, plan, self._next_seq(), local=True)
        self._keep_contents(document, contents, envelope.signer)

    def stages(self, document: Document) -> bool:
        """Tell whether something of a document is accepted and not yet durable."""
        return any(done.document is document for done in self._accepted)

    def commit(self) -> None:
        """Make everything that was accepted durable, with what the hooks make of it, in one transaction.

        Raises:
            Exception: the store could not; nothing of it is kept.
        """
        if not self._batch:
            self.gathering.committed()
            return
        engine, store = self._engine, self._engine.store
        batch, self._batch = self._batch, Batch()
        accepted, self._accepted = self._accepted, []
        try:
            with store.transaction():
                store.write(batch)
                tell(engine, accepted)
                engine.quotas.save()
                events = engine.events.write()
        except Exception:
            self.reset()
            raise
        self.staged.clear()
        self.gathering.committed()
        for done in accepted:
            done.document.staged_writes.clear()
        engine.events.settled()
        engine.events.publish(events)
        came = frozenset(
            (done.document.row.room_id, done.document.room_part, done.client)
            for done in accepted
            if not done.local and done.document.row.room_id is not None
        )
        if came:
            for listener in engine.arrival_listeners:
                listener(came)

    def _one(self, arrival: Arrival, outcome: ArrivalReport) -> None:
        name = ""
        try:
            envelope = unpack(arrival.envelope)
            name = envelope.doc_id
            if _PASSING in envelope.doc_id:
                if self._knows_signer(envelope, arrival, outcome):
                    self._engine.ephemeral.take(envelope)
                return
            if self._engine.is_new(envelope.doc_id):
                self._first(envelope, arrival, outcome)
                return
            document = self._engine.wanted_document(envelope.doc_id)
            update = decode_update(envelope.payload)
            if document.forks:
                self.forks.refuse_void(document, update)
            if document.known(update) and not self.forks.contradicts(document, envelope, update):
                self.counts["duplicate"] += 1
                self._keep_contents(document, self._offers.named_by(update, arrival.contents))
            elif self._knows_signer(envelope, arrival, outcome):
                if document.place.kind == "config" and self.gathering.keep(document, update, arrival):
                    self.counts["gathered"] += 1
                    return
                self._received(document, envelope, update, self._offers.named_by(update, arrival.contents), outcome)
        except Refused as refused:
            if refused.refusal is Refusal.QUOTA and any(
                done.document.place.kind == "config" for done in self._accepted
            ):
                self._deferred.append(arrival)
            else:
                self.counts[refused.refusal] += 1
                if refused.refusal is Refusal.QUOTA:
                    self.gathering.refused(name)

    def _first(self, envelope: Envelope, arrival: Arrival, outcome: ArrivalReport) -> None:
        """Take what would be the first of a document, which is only made for who may begin it."""
        place = self._engine.wanted_place(envelope.doc_id)
        update = decode_update(envelope.payload)
        if not self._knows_signer(envelope, arrival, outcome):
            return
        self._engine.quotas.may_begin(place, envelope.signer)
        document = self._engine.wanted_document(envelope.doc_id)
        self._received(document, envelope, update, self._offers.named_by(update, arrival.contents), outcome)

    def _received(
        self, document: Document, envelope: Envelope, update: Update, contents: dict[str, bytes], outcome: ArrivalReport
    ) -> None:
        digest = hashlib.sha256(envelope.signed).digest()
        if not update.items and (digest in self._deletes_seen or self._deletes_nothing(document, envelope, update)):
            self.counts["duplicate"] += 1
            return
        self._check_client(document, envelope, update)
        if document.missing(update):
            self._engine.quotas.may_wait(document, envelope, update)
            document.hold(digest, envelope, update)
            self._keep_contents(document, contents, envelope.signer)
            self.counts["held"] += 1
            outcome.gaps.add(document.row.doc_id)
            return
        size = len(envelope.payload) + sum(map(len, contents.values()))
        self._engine.quotas.admit(document, envelope.signer, update, size)
        self._accept(document, envelope, update)
        self._keep_contents(document, contents, envelope.signer)
        while len(document.held) and (ready := document.release()):
            for held in ready:
                try:
                    if not document.known(held.update) or self.forks.contradicts(document, held.envelope, held.update):
                        self._check_client(document, held.envelope, held.update)
                        size = len(held.envelope.payload)
                        self._engine.quotas.admit(document, held.envelope.signer, held.update, size)
                        self._accept(document, held.envelope, held.update)
                except Refused as refused:
                    self.counts[refused.refusal] += 1

    def _deletes_nothing(self, document: Document, envelope: Envelope, update: Update) -> bool:
        """Tell whether its signer has deleted all that before, which would fill the log for nothing."""
        trust, number = self._engine.store.trust, document.row.number
        return all(trust.is_deleted(number, envelope.signer, cut) for cut in update.deletions)

    def _accept(self, document: Document, envelope: Envelope, update: Update) -> None:
        plan = document.plan(update)
        refuse_forbidden(self._engine.datatype_of(document), document, envelope.signer, plan)
        self._stage(document, envelope, update, plan, self._next_seq(), local=False)
        self.counts["accepted"] += 1
        if not update.items:
            self._deletes_seen[hashlib.sha256(envelope.signed).digest()] = None
            while len(self._deletes_seen) > MAX_DIGESTS:
                del self._deletes_seen[next(iter(self._deletes_seen))]

    def _knows_signer(self, envelope: Envelope, arrival: Arrival, outcome: ArrivalReport) -> bool:
        """Verify the signature; where nobody's key is known yet, keep the envelope until it is."""
        keys = self._engine.keyring.keys(envelope.signer)
        if keys is not None:
            verify(envelope, keys)
            return True
        self.counts[Refusal.UNKNOWN_SIGNER] += 1
        waiting = self.waiting if self._engine.meets(envelope.signer) else self.strangers
        waiting.keep(envelope.signer, arrival)
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
            self.forks.note(document, envelope, update)
            raise Refused(Refusal.EQUIVOCATION, "another update for clocks that were used before")

    def _keep_contents(self, document: Document, contents: dict[str, bytes], by: EntityId | None = None) -> None:
        """Keep contents; ``by`` has signed what names them, unless that was here before."""
        room_id = document.place.room_id
        if by is not None:
            self._engine.usage.charge(room_id, by, sum(map(len, contents.values())))
        if room_id is not None:
            for content_id, raw in contents.items():
                self._batch.contents[document.row.number, content_id] = raw

    def _stage(
        self, document: Document, envelope: Envelope, update: Update, plan: Plan, seq: int, *, local: bool
    ) -> None:
        signer, client = envelope.signer, update.client
        head = document.extended(update, envelope.payload)
        log = LogRow(seq, client if update.items else None, update.start, update.end, envelope.raw, head)
        staged = StagedUpdate(document.row, log, signer, bool(update.items) and client not in document.clients)
        shown = document.place.kind == "index" and self._shown(document, signer, update)
        datatype = self._engine.datatype_of(document)
        name = datatype.entry_id if datatype is not None else "ref_id"
        staged.entries = [entry_row(name, signer, client, entry, seq, shown=shown) for entry in plan.entries]
        staged.writes = [write_row(signer, client, write, seq) for write in plan.writes]
        if datatype is not None and datatype.latest_only:
            staged.superseded = [write.origin for write in staged.writes if write.origin is not None]
        written_over = {item.origin for item in update.items}
        staged.deletions = [
            DeletionRow(cut, signer)
            for cut in update.deletions
            if not (cut.length == 1 and (cut.client, cut.clock) in written_over)  # the write says as much
        ]
        document.accept(update, signer, staged.entries)
        for write in staged.writes:
            document.staged_writes[write.client, write.clock] = write
        self._batch.updates.append(staged)
        self._engine.usage.charge(document.place.room_id, signer, size_of(staged))
        self.staged[seq] = update
        if document.place.kind == "config" and document.place.room_id is not None:
            self.gathering.accepted(document.place.room_id)
        self._accepted.append(Accepted(document, envelope, client, plan, local, seq))

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _shown(self, document: Document, signer: EntityId, update: Update) -> bool:
        room_id = document.place.room_id
        return room_id is not None and self._engine.rooms.counts(
            room_id, signer, document.room_part, (update.client, update.start)
        )
