"""The hot path: unpack, decode strictly, drop duplicates, verify, hold gaps, authorise, commit in a group, apply.

Everything runs on the engine's one thread. Nothing changes in memory before it is known to be good, and nothing is told
before it is durable; a commit that fails forgets the open documents, which are read again from what is durable.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

from sublet.messaging.accepting.arrival import Arrival, ArrivalReport
from sublet.messaging.accepting.config_gathering import ConfigGathering
from sublet.messaging.accepting.staging import Staging
from sublet.messaging.documents.document import Document
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.intake.awaited import AwaitedRefs
from sublet.messaging.intake.offers import Offers
from sublet.messaging.intake.waiting import WaitingForKeys
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.opening.room_order import RoomOrder
from sublet.messaging.passing.ephemeral import Ephemeral
from sublet.messaging.ports.store import Store
from sublet.messaging.quotas.quotas import Quotas
from sublet.messaging.reading.authorise import refuse_forbidden
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.trust.forks import Forks
from sublet.protocol.ezagent.bundle import Bundle, RecordKind
from sublet.protocol.ezagent.digest_tree import place_of_deletion
from sublet.protocol.ezagent.envelope import Envelope, unpack, verify
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId, is_client_of
from sublet.protocol.ezagent.keys import DocumentPlace, doc_id
from sublet.protocol.ezagent.order import AFTER
from sublet.protocol.ezagent.purge import check_tombstone
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.update import ANY, Update

_PASSING: Final = "/ephemeral/"
MAX_DIGESTS: Final = 4_096
_FORGED: Final = frozenset({Refusal.BAD_SIGNATURE, Refusal.MALFORMED})
"""Why something is refused that every peer would have refused before it handed it on."""


class Intake:
    """Takes updates, from the wire and from here.

    Args:
        store: what was accepted before.
        documents: which documents are wanted.
        keyring: whose key is whose.
        here: whom we meet.
        quotas: how much is kept of whom.
        ephemeral: takes what is said in passing.
        gathering: keeps back what is sent to long configs.
        staging: makes what is accepted durable.
        forks: finds those who sign two histories.
        order: where refs stand.
        counts: how many updates were accepted, duplicates, held, and refused by reason.
    """

    def __init__(
        self,
        store: Store,
        documents: OpenDocuments,
        keyring: Keyring,
        here: RoomsHere,
        quotas: Quotas,
        ephemeral: Ephemeral,
        gathering: ConfigGathering,
        staging: Staging,
        forks: Forks,
        order: RoomOrder,
        counts: Counter[str],
    ) -> None:
        self._store = store
        self._documents = documents
        self._keyring = keyring
        self._here = here
        self._quotas = quotas
        self._ephemeral = ephemeral
        self.gathering = gathering
        self._staging = staging
        self._forks = forks
        self._order = order
        self.counts = counts
        """How many updates were accepted, duplicates, held, and refused by reason."""
        self.waiting = WaitingForKeys()
        """Of members."""
        self.strangers = WaitingForKeys()
        self.awaited = AwaitedRefs()
        self._offers = Offers(self.counts)
        self._deferred: list[Arrival] = []
        self._deletes_seen: dict[bytes, None] = {}
        staging.forgetting.append(self._deferred.clear)
        staging.forgetting.append(self.awaited.drop)

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
        outcome.accepted = self._staging.accepted
        self._staging.commit()
        deferred = self._deferred.copy()
        self._deferred.clear()
        if deferred:  # what came along may have let their signers in
            outcome.add(self.take(deferred))
        outcome.gaps |= self._forks.learn(self._take_again)
        return outcome

    def take_due(self) -> ArrivalReport:
        """Take what has waited long enough."""
        return self.take(())

    def _take_again(self, envelopes: Sequence[bytes]) -> None:
        """Take what was held in a document that was read anew."""
        self.take([Arrival(raw) for raw in envelopes])

    def take_bundle(self, room_id: RoomId | None, bundle: Bundle) -> ArrivalReport:
        """Take what a peer has answered: who its signers are, the log beyond ours, and contents."""
        outcome = ArrivalReport()
        for raw in bundle.of(RecordKind.IDENTITY):
            try:
                outcome.add(self.learn(raw))
            except Refused as refused:
                self._refused(refused, outcome)
        for raw in bundle.of(RecordKind.FORK):
            try:
                self._forks.take_proof(raw)
            except Refused as refused:
                self._refused(refused, outcome)
        with self._offers.along(bundle.of(RecordKind.CONTENT) if room_id is not None else ()):
            outcome.add(self.take([Arrival(raw) for raw in bundle.of(RecordKind.ENVELOPE)]))
        return outcome

    def learn(self, raw: bytes) -> ArrivalReport:
        """Take an identity record; what waited for it is taken now.

        Raises:
            Refused: the record does not prove itself.
        """
        record = self._keyring.learn(raw, self._is_wanted)
        if record is None:
            return ArrivalReport()
        self._staging.learn(record.entity_id, record.encode())
        return self.take([*self.waiting.release(record.entity_id), *self.strangers.release(record.entity_id)])

    def _is_wanted(self, entity: EntityId) -> bool:
        """Tell whether an entity's record is wanted, however many of strangers are here."""
        return entity in self.waiting or entity in self.strangers or self._here.meets(entity)

    def _one(self, arrival: Arrival, outcome: ArrivalReport) -> None:
        name = ""
        try:
            envelope = unpack(arrival.envelope)
            name = envelope.doc_id
            if _PASSING in envelope.doc_id:
                if self._knows_signer(envelope, arrival, outcome):
                    self._ephemeral.take(envelope)
                return
            if self._documents.is_new(envelope.doc_id):
                self._first(envelope, arrival, outcome)
                return
            document = self._documents.wanted(envelope.doc_id)
            update = self._decoded(document.place, envelope)
            if document.forks:
                self._forks.refuse_void(document, update)
            if document.known(update) and not self._forks.contradicts(document, envelope, update):
                self.counts["duplicate"] += 1
                self._staging.keep_contents(document, self._offers.named_by(update, arrival.contents))
            elif self._knows_signer(envelope, arrival, outcome):
                if document.place.kind == "config" and self.gathering.keep(document, update, arrival):
                    self.counts["gathered"] += 1
                    outcome.left += 1
                    return
                self._received(document, envelope, update, self._offers.named_by(update, arrival.contents), outcome)
        except Refused as refused:
            outcome.forged += refused.refusal in _FORGED
            if refused.refusal is Refusal.QUOTA and self._staging.changes_config:
                self._deferred.append(arrival)
            else:
                self._refused(refused, outcome)
                if refused.refusal is Refusal.QUOTA:
                    self.gathering.refused(name)

    def _first(self, envelope: Envelope, arrival: Arrival, outcome: ArrivalReport) -> None:
        """Take what would be the first of a document, which is only made for who may begin it."""
        place = self._documents.wanted_place(envelope.doc_id)
        update = self._decoded(place, envelope)
        if not self._knows_signer(envelope, arrival, outcome):
            return
        self._quotas.may_begin(place, envelope.signer)
        document = self._documents.wanted(envelope.doc_id)
        self._received(document, envelope, update, self._offers.named_by(update, arrival.contents), outcome)

    def _decoded(self, place: DocumentPlace, envelope: Envelope) -> Update:
        update = decode_update(envelope.payload)
        if place.kind == "purge":
            check_tombstone(update, len(envelope.payload))
        return update

    def _received(
        self, document: Document, envelope: Envelope, update: Update, contents: dict[str, bytes], outcome: ArrivalReport
    ) -> None:
        digest = hashlib.sha256(envelope.signed).digest()
        if not update.items and (digest in self._deletes_seen or self._deletes_nothing(document, envelope, update)):
            self.counts["duplicate"] += 1
            return
        self._check_client(document, envelope, update)
        if document.missing(update):
            self._quotas.may_wait(document, envelope, update)
            document.hold(digest, envelope, update)
            self._staging.keep_contents(document, contents, envelope.signer)
            self.counts["held"] += 1
            outcome.gaps.add(document.row.doc_id)
            return
        if self._awaits(document, envelope, update, tuple(contents.values()), outcome):
            return
        size = len(envelope.payload) + sum(map(len, contents.values()))
        self._quotas.admit(document, envelope.signer, update, size)
        self._accept(document, envelope, update)
        self._staging.keep_contents(document, contents, envelope.signer)
        while len(document.held) and (ready := document.release()):
            for held in ready:
                try:
                    if not document.known(held.update) or self._forks.contradicts(document, held.envelope, held.update):
                        self._check_client(document, held.envelope, held.update)
                        if self._awaits(document, held.envelope, held.update, (), outcome):
                            continue
                        size = len(held.envelope.payload)
                        self._quotas.admit(document, held.envelope.signer, held.update, size)
                        self._accept(document, held.envelope, held.update)
                except Refused as refused:
                    self._refused(refused, outcome)

    def _refused(self, refused: Refused, outcome: ArrivalReport) -> None:
        self.counts[refused.refusal] += 1
        outcome.left += 1

    def _awaits(
        self,
        document: Document,
        envelope: Envelope,
        update: Update,
        contents: tuple[bytes, ...],
        outcome: ArrivalReport,
    ) -> bool:
        """Keep a ref whose writer had seen a ref of another shard that is not here; tell whether there is such a one.

        Raises:
            Refused: ``QUOTA``: its writer is no member, or too much waits.
        """
        for item in update.items if document.is_shard else ():
            if item.key != AFTER or item.kind != ANY or not isinstance(item.value, list):
                continue
            after = self._order.after_of(document, {AFTER: item.value[-1]})
            if after is None or self._order.is_here(document, after):
                continue
            self._quotas.may_wait(document, envelope, update)
            name = doc_id("index", room_id=str(document.place.room_id), shard_id=after.shard)
            outcome.gaps.add(name)
            if not self.awaited.keep(name, after.item, Arrival(envelope.raw, contents)):
                raise Refused(Refusal.QUOTA, "too much waits for what is missing")
            self.counts["held"] += 1
            return True
        return False

    def _deletes_nothing(self, document: Document, envelope: Envelope, update: Update) -> bool:
        """Tell whether an update that only deletes is here; of what no room shares, whether its signer has done that.

        What a room shares is kept even where it brings nothing new: whoever has it in another order must have the same.
        """
        trust, row = self._store.trust, document.row
        if row.room_id is not None and document.place.kind != "draft":
            place = place_of_deletion(row.doc_id, envelope.signer, envelope.payload)
            return self._store.tree.leaf(row.room_id, place) is not None
        number, now = row.number, self._store.last_seq() + 1
        return all(trust.is_deleted(number, envelope.signer, cut, now) for cut in update.deletions)

    def _accept(self, document: Document, envelope: Envelope, update: Update) -> None:
        plan = document.plan(update)
        refuse_forbidden(self._documents.datatype_of(document), document, envelope.signer, plan)
        self._staging.stage(document, envelope, update, plan, self._staging.next_seq(), local=False)
        self.counts["accepted"] += 1
        self._deferred += self.awaited.release(document.row.doc_id, update.client, update.end)
        if not update.items:
            self._deletes_seen[hashlib.sha256(envelope.signed).digest()] = None
            while len(self._deletes_seen) > MAX_DIGESTS:
                del self._deletes_seen[next(iter(self._deletes_seen))]

    def _knows_signer(self, envelope: Envelope, arrival: Arrival, outcome: ArrivalReport) -> bool:
        """Verify the signature; where nobody's key is known yet, keep the envelope until it is."""
        keys = self._keyring.keys(envelope.signer)
        if keys is not None:
            verify(envelope, keys)
            return True
        self.counts[Refusal.UNKNOWN_SIGNER] += 1
        waiting = self.waiting if self._here.meets(envelope.signer) else self.strangers
        waiting.keep(envelope.signer, arrival)
        outcome.unknown_signers.add(envelope.signer)
        outcome.left += 1
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
            self._forks.note(document, envelope, update)
            raise Refused(Refusal.EQUIVOCATION, "another update for clocks that were used before")
