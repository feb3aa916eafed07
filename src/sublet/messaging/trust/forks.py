"""Equivocation: one client, two updates for the same clocks. Whoever does that forks its own log, and nobody else's.

No replica can tell which of the two the others hold, so from the fork on nothing of that client counts, anywhere. The
two envelopes prove it to whoever sees them. A fork that is learnt late takes the document back to before it, and what
all others have written since is taken again. That costs time, so of who does it ``MAX_FORKS_OF_SIGNER`` times in one
document nothing counts there any more, whatever they still sign.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from sublet.messaging.accepting.config_changes import ConfigChanges
from sublet.messaging.accepting.staging import Staging
from sublet.messaging.documents.document import MAX_FORKS_OF_SIGNER, Document
from sublet.messaging.events.events import Events
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.opening.room_order import RoomOrder
from sublet.messaging.ports.rows import Fork
from sublet.messaging.ports.store import Store
from sublet.messaging.quotas.quotas import Quotas
from sublet.messaging.schema.changes import Happened, RunsHooks
from sublet.messaging.schema.datatypes import Change
from sublet.protocol.ezagent.bundle import RecordKind, decode_bundle
from sublet.protocol.ezagent.envelope import Envelope, unpack, verify
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.ids import is_client_of
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.update import Update

EQUIVOCATION_EVENT: Final = "room.equivocation"
MAX_NEW_FORKS: Final = 64
"""Forks that are taken in with one batch; what is beyond shows again with the next difference."""

log = structlog.get_logger(__name__)


class Forks:
    """Finds forks, and makes what is behind them count no more.

    Args:
        store: where proofs are kept.
        documents: what is taken back.
        keyring: whose key is whose.
        quotas: notes what is not asked for again.
        staging: what was accepted, and what is taken once more.
        configs: decides the states of rooms.
        hooks: who are told.
        events: what is told of who forks.
        order: where refs stand.
    """

    def __init__(
        self,
        store: Store,
        documents: OpenDocuments,
        keyring: Keyring,
        quotas: Quotas,
        staging: Staging,
        configs: ConfigChanges,
        hooks: RunsHooks,
        events: Events,
        order: RoomOrder,
    ) -> None:
        self._store = store
        self._documents = documents
        self._keyring = keyring
        self._quotas = quotas
        self._staging = staging
        self._configs = configs
        self._hooks = hooks
        self._events = events
        self._order = order
        self._found: dict[tuple[str, int], Fork] = {}

    def refuse_void(self, document: Document, update: Update) -> None:
        """Refuse what a client has written beyond its fork.

        Raises:
            Refused: ``EQUIVOCATION``.
        """
        if update.items and document.is_void((update.client, update.end - 1)):
            self._quotas.pass_over(document, update)
            raise Refused(Refusal.EQUIVOCATION, "written by a client that has forked")

    def contradicts(self, document: Document, envelope: Envelope, update: Update) -> bool:
        """Tell whether an update is another one than what is here of the same client and clocks."""
        if not update.items or update.start >= document.next_clock(update.client):
            return False
        there = self._staging.envelope_at(document, update.client, update.start)
        return there is not None and unpack(there).payload != envelope.payload

    def note(self, document: Document, envelope: Envelope, update: Update) -> None:
        """Note a proven contradiction: the signatures of both envelopes are good.

        Raises:
            Refused: they contradict each other in nothing.
        """
        there = self._staging.envelope_at(document, update.client, update.start)
        if there is not None:
            self._note(unpack(there), envelope)

    def take_proof(self, raw: bytes) -> None:
        """Take the proof of a fork that somebody shows.

        Raises:
            Refused: it proves none.
        """
        envelopes = decode_bundle(raw).of(RecordKind.ENVELOPE)
        if len(envelopes) != 2:
            raise malformed("two envelopes prove a fork")
        one, other = map(unpack, envelopes)
        self._documents.wanted(one.doc_id)
        keys = self._keyring.keys(one.signer)
        if keys is None:
            raise Refused(Refusal.UNKNOWN_SIGNER, "a fork of somebody who is not known")
        verify(one, keys)
        verify(other, keys)
        self._note(one, other)

    def _note(self, one: Envelope, other: Envelope) -> None:
        """Note two envelopes with good signatures.

        Raises:
            Refused: they contradict each other in nothing.
        """
        first, second = decode_update(one.payload), decode_update(other.payload)
        if (
            (one.signer, one.doc_id, first.client) != (other.signer, other.doc_id, second.client)
            or not is_client_of(first.client, one.signer)
            or one.payload == other.payload
            or max(first.start, second.start) >= min(first.end, second.end)
        ):
            raise Refused(Refusal.WRONG_SHAPE, "two updates that do not contradict each other")
        clock, key = min(first.start, second.start), (one.doc_id, first.client)
        known = self._found.get(key)
        if len(self._found) < MAX_NEW_FORKS and (known is None or clock < known.clock):
            self._found[key] = Fork(first.client, clock, one.signer, one.raw, other.raw)

    def learn(self, take_again: Callable[[Sequence[bytes]], None]) -> set[str]:
        """Take in what was noted, once all else is durable; return the documents that changed.

        Args:
            take_again: takes the envelopes that a document held, which was read anew.
        """
        found, self._found = self._found, {}
        by_document: dict[str, list[Fork]] = {}
        for (name, _), fork in found.items():
            known = self._documents.open(name).forks.get(fork.client)
            if known is None or fork.clock < known:
                by_document.setdefault(name, []).append(fork)
        for name, forks in by_document.items():
            take_again(self._take_back(name, forks + self._of_outcasts(self._documents.open(name), forks)))
        return set(by_document)

    def _of_outcasts(self, document: Document, news: list[Fork]) -> list[Fork]:
        """Return what forks as well since its signer has forked too often: all that they have written here."""
        before = self._store.trust.forks(document.row.number)
        forked = {fork.client: fork for fork in (*before, *news)}
        often = Counter(fork.signer for fork in forked.values())
        outcasts = {fork.signer for fork in news if often[fork.signer] >= MAX_FORKS_OF_SIGNER}
        written = {client: signer for client, (_, signer) in document.clients.items()}
        written |= {client: fork.signer for client, fork in forked.items() if fork.clock > 0}
        proofs = {client: (fork.one, fork.other) for client, fork in forked.items()}
        return [
            Fork(client, 0, signer, *proofs.get(client, (b"", b"")))
            for client, signer in written.items()
            if signer in outcasts
        ]

    def _take_back(self, name: str, forks: list[Fork]) -> list[bytes]:
        """Take a document back to before its forks, and what all others wrote since once more; return what it held."""
        document = self._documents.open(name)
        row, datatype = document.row, self._documents.datatype_of(document)
        fork = forks[0]
        for signer in sorted({fork.signer for fork in forks}):
            log.warning("a member has signed two updates for the same clocks", signer=signer, document=name)
        held = self._documents.close(name)
        try:
            with self._store.transaction():
                for one in forks:
                    self._store.trust.put_fork(row.number, one)
                clocks = {one.client: one.clock for one in forks}
                self._staging.replay(name, self._store.trust.rewind(row.number, clocks))
                held += self._order.rank_anew(name)
                if row.kind == "config" and row.room_id is not None:
                    self._configs.changed(row.room_id, fork.signer, self._store.last_seq(), local=False)
                elif datatype is not None:
                    item = (fork.client, fork.clock)
                    self._hooks.after_write(Happened(datatype.id, Change.DELETE, name, row.room_id, fork.signer, item))
                for signer, clock in {one.signer: one.clock for one in forks}.items():
                    self._events.tell(
                        EQUIVOCATION_EVENT,
                        row.room_id,
                        {"room_id": row.room_id, "entity": signer, "document": name, "clock": clock},
                    )
                events = self._events.write()
        except Exception:
            self._staging.reset()
            raise
        self._events.publish(events)
        return held
