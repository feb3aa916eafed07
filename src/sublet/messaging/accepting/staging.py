"""What is accepted and not durable yet: staged in memory, then committed in one transaction with what the hooks make.

Rules: nothing is told before it is durable. A commit that fails forgets all that was only in memory, and everything is
read again from the store. Our own updates never use a clock twice. Weak: a hook that fails for good is logged alone,
since what it was told of can't be taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sublet.messaging.accepting.accepted import Accepted, ChangeTeller, entry_row, write_row
from sublet.messaging.accepting.config_gathering import ConfigGathering
from sublet.messaging.documents.document import Document
from sublet.messaging.documents.plan import Plan
from sublet.messaging.events.events import Events
from sublet.messaging.opening.accepted_updates import AcceptedUpdates
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.opening.room_order import RoomOrder
from sublet.messaging.ports.rows import Batch, DeletionRow, LogRow, StagedUpdate
from sublet.messaging.ports.store import Store
from sublet.messaging.quotas.quotas import Quotas
from sublet.messaging.quotas.usage import DiskUsage, size_of
from sublet.messaging.reading.authorise import refuse_forbidden
from sublet.messaging.rooms.states import RoomStates
from sublet.protocol.ezagent.content import NAMING_KINDS
from sublet.protocol.ezagent.envelope import Envelope, unpack
from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.update import Update

Came: TypeAlias = tuple[RoomId, str, int, bool]
"""What was written: the room, the part of it, the client, and whether one of ours wrote it."""


@dataclass(slots=True)
class LeftOut:
    """Updates of a log that were not taken once more: what they build on is missing, or they are not allowed."""

    gaps: list[bytes] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)


class Staging:
    """The batch that is being made.

    Args:
        store: where it is written.
        documents: what it changes.
        updates: the log's updates, decoded.
        rooms: who is in which room.
        order: where refs stand.
        quotas: what may be begun, and what was used.
        usage: what is charged.
        events: what is told once it is durable.
        gathering: what waits of long configs.
        teller: tells the hooks.
        counts: where refusals are counted.
    """

    def __init__(
        self,
        store: Store,
        documents: OpenDocuments,
        updates: AcceptedUpdates,
        rooms: RoomStates,
        order: RoomOrder,
        quotas: Quotas,
        usage: DiskUsage,
        events: Events,
        gathering: ConfigGathering,
        teller: ChangeTeller,
        counts: Counter[str],
    ) -> None:
        self._store = store
        self._documents = documents
        self._updates = updates
        self._rooms = rooms
        self._order = order
        self._quotas = quotas
        self._usage = usage
        self._events = events
        self._gathering = gathering
        self._teller = teller
        self._counts = counts
        self._batch = Batch()
        self._accepted: list[Accepted] = []
        self._seq = store.last_seq()
        self.landed: list[Callable[[Sequence[Accepted]], None]] = []
        """Told what is accepted, whether it counts or not, inside its transaction."""
        self.arrived: list[Callable[[frozenset[Came]], None]] = []
        """Told what was written, once it is durable."""
        self.forgetting: list[Callable[[], None]] = []
        """Called where a transaction has failed: each part goes back to what is durable."""
        self.losses = 0
        """How often that was so: whoever has written before then, and was not durable yet, has lost it."""

    @property
    def accepted(self) -> int:
        """Return how many updates wait for the commit."""
        return len(self._accepted)

    @property
    def changes_config(self) -> bool:
        """Whether the batch changes a room's config, which may let others in."""
        return any(done.document.place.kind == "config" for done in self._accepted)

    def learn(self, entity: EntityId, record: bytes) -> None:
        """Keep a proven identity record."""
        self._batch.records[entity] = record

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
        self._documents.refuse_gone(document.place, document.row.doc_id)
        if not document.clients:
            self._quotas.may_begin(document.place, envelope.signer)
        plan = document.plan(update)
        refuse_forbidden(self._documents.datatype_of(document), document, envelope.signer, plan)
        self.stage(document, envelope, update, plan, self.next_seq(), local=True)
        self.keep_contents(document, contents, envelope.signer)

    def commit(self) -> None:
        """Make everything that was accepted durable, with what the hooks make of it, in one transaction.

        Raises:
            Exception: the store could not; nothing of it is kept.
            RuntimeError: a hook asks for it while it is being told of a commit; nothing is lost by that.
        """
        if not self._batch:
            self._gathering.committed()
            return
        store = self._store
        if store.in_transaction:
            raise RuntimeError("nothing is committed within a commit")
        batch, self._batch = self._batch, Batch()
        accepted, self._accepted = self._accepted, []
        try:
            with store.transaction():
                store.write(batch)
                self._teller.tell(accepted)
                for told in self.landed:
                    told(accepted)
                self._quotas.save()
                events = self._events.write()
        except Exception:
            self.reset()
            raise
        self._updates.settled()
        self._gathering.committed()
        for done in accepted:
            done.document.staged_writes.clear()
            done.document.unsettled = False
        self._documents.settled(len(accepted))
        self._events.settled()
        self._events.publish(events)
        came = frozenset(
            (done.document.row.room_id, done.document.room_part, done.client, done.local)
            for done in accepted
            if done.document.row.room_id is not None
        )
        if came:
            for listener in self.arrived:
                listener(came)

    def keep_contents(self, document: Document, contents: dict[str, bytes], by: EntityId | None = None) -> None:
        """Keep contents; ``by`` has signed what names them, unless that was here before."""
        if document.place.kind not in NAMING_KINDS:
            contents = {}
        room_id, purges = document.place.room_id, self._store.purges
        if room_id is not None and contents and purges.has_any(room_id):
            contents = {name: raw for name, raw in contents.items() if not purges.refuses(room_id, name, raw)}
        if by is not None:
            self._usage.charge(room_id, by, sum(map(len, contents.values())))
        if room_id is not None:
            for content_id, raw in contents.items():
                self._batch.contents[document.row.number, content_id] = raw

    def replay(self, name: str, rows: Iterable[tuple[int, bytes]], left: LeftOut | None = None) -> None:
        """Take accepted updates of a document once more, by their numbers in the log, and tell nobody.

        Args:
            name: the document's id.
            rows: its updates.
            left: takes those that can't be taken, where rows may be missing; None where none are.
        """
        document = self._documents.open(name)
        for seq, raw in rows:
            envelope = unpack(raw)
            update = decode_update(envelope.payload)
            if left is not None:
                if document.known(update) or (update.items and update.start < document.next_clock(update.client)):
                    continue  # it is there twice
                if document.missing(update):
                    left.gaps.append(raw)
                    continue
            try:
                plan = document.plan(update)
                refuse_forbidden(self._documents.datatype_of(document), document, envelope.signer, plan)
            except Refused as refused:
                self._counts[refused.refusal] += 1
                if left is not None:
                    left.refused.append(raw)
                continue
            self.stage(document, envelope, update, plan, seq, local=False)
        batch, self._batch = self._batch, Batch()
        self._store.write(batch)
        for staged in batch.updates:  # they were counted when they came
            self._usage.charge(document.place.room_id, staged.signer, -size_of(staged))
        self._accepted.clear()
        self._updates.staged.clear()
        document.staged_writes.clear()
        document.unsettled = False

    def envelope_at(self, document: Document, client: int, clock: int) -> bytes | None:
        """Return the accepted envelope in which a client wrote a clock of a document."""
        number = document.row.number
        for staged in self._batch.updates:
            row = staged.log
            if staged.document.number == number and row.client == client and row.start <= clock < row.end:
                return row.envelope
        return self._store.trust.update_at(number, client, clock)

    def reset(self) -> None:
        """Go back to what is durable, after a transaction that failed."""
        self.losses += 1
        self._batch = Batch()
        self._accepted.clear()
        self._updates.staged.clear()
        self._gathering.committed()
        for forget in self.forgetting:
            forget()
        self._seq = self._store.last_seq()

    def stage(
        self, document: Document, envelope: Envelope, update: Update, plan: Plan, seq: int, *, local: bool
    ) -> None:
        """Note an accepted update, in memory at once and in the store with the next commit."""
        signer, client = envelope.signer, update.client
        before, head = document.extended(update, envelope.payload)
        log = LogRow(seq, client if update.items else None, update.start, update.end, envelope.raw, head, before)
        staged = StagedUpdate(document.row, log, signer, bool(update.items) and client not in document.clients)
        of_shard = document.is_shard
        shown = of_shard and self._shown(document, signer, update)
        datatype = self._documents.datatype_of(document)
        name = datatype.entry_id if datatype is not None else "ref_id"
        staged.entries = [entry_row(name, signer, client, entry, seq, shown=shown) for entry in plan.entries]
        for row, entry in zip(staged.entries, plan.entries, strict=True) if of_shard else ():
            row.rank = self._order.least_rank(document, entry.fields, row.entry_id)
            after = self._order.after_row(document, entry.fields, (client, entry.item.clock))
            staged.afters += [after] if after is not None else []
        staged.writes = [write_row(signer, client, write, seq) for write in plan.writes]
        if datatype is not None and datatype.latest_only:
            staged.superseded = [write.origin for write in staged.writes if write.origin is not None]
        written_over = {item.origin for item in update.items}  # of which the writes say that it is gone
        staged.deletions = [
            DeletionRow(cut, signer)
            for cut in update.deletions
            if cut.length > len(update.items)
            or any((cut.client, cut.clock + at) not in written_over for at in range(cut.length))
        ]
        document.accept(update, signer, staged.entries)
        self._order.taken(document, staged.entries)
        document.unsettled = True
        for write in staged.writes:
            document.staged_writes[write.client, write.clock] = write
        self._batch.updates.append(staged)
        self._usage.charge(document.place.room_id, signer, size_of(staged))
        self._updates.staged[seq] = update
        if document.place.kind == "config" and document.place.room_id is not None:
            self._gathering.accepted(document.place.room_id)
        self._accepted.append(Accepted(document, envelope, client, plan, local, seq))

    def next_seq(self) -> int:
        """Return the number in the log of the next update that is accepted."""
        self._seq += 1
        return self._seq

    def _shown(self, document: Document, signer: EntityId, update: Update) -> bool:
        room_id = document.place.room_id
        return room_id is not None and self._rooms.counts(
            room_id, signer, document.room_part, (update.client, update.start)
        )
