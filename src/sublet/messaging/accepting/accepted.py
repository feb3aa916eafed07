"""Tells what accepted updates add to the store, and tells the hooks what they have changed.

Rules: configs come first, since they decide what else counts; nothing that does not count is told. Weak: a deletion is
told only where the key has no value any more, which asks for a look at the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sublet.messaging.accepting.config_changes import ConfigChanges
from sublet.messaging.documents.document import Document
from sublet.messaging.documents.plan import NewEntry, NewWrite, Plan, encoded
from sublet.messaging.opening.accepted_updates import AcceptedUpdates
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.ports.rows import EntryRow, WriteRow
from sublet.messaging.ports.store import Store
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.changes import Happened, RunsHooks
from sublet.messaging.schema.datatypes import Change, Datatype
from sublet.protocol.ezagent.envelope import Envelope
from sublet.protocol.ezagent.ids import EntityId

MAX_LOOKED_BACK: Final = 256
"""Deletions of one signer that are compared with a new one; what was deleted before these may be told once more."""


@dataclass(slots=True)
class Accepted:
    """An update that was accepted, with what it does."""

    document: Document
    envelope: Envelope
    client: int
    plan: Plan
    local: bool
    seq: int


def entry_row(name: str, signer: EntityId, client: int, entry: NewEntry, seq: int, *, shown: bool) -> EntryRow:
    """Return the row of a new element.

    Args:
        name: the field that names it.
        signer: its author.
        client: the author's client id.
        entry: the element.
        seq: the number of its update in the log.
        shown: whether it counts.
    """
    item, entry_id = entry.item, str(entry.fields[name])
    return EntryRow(client, item.clock, entry.length, item.origin, item.right, entry_id, signer, seq, shown)


def write_row(signer: EntityId, client: int, write: NewWrite, seq: int) -> WriteRow:
    """Return the row of a write of one key."""
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
        seq,
        None if write.makes_map else encoded(write.value),
    )


class ChangeTeller:
    """Tells the hooks what accepted updates have changed.

    Args:
        hooks: who are told.
        documents: which datatype a document holds.
        store: what was there before.
        updates: the log's updates, decoded.
        rooms: who is in which room.
        reading: whether something is still there.
        configs: decides the states of rooms.
    """

    def __init__(
        self,
        hooks: RunsHooks,
        documents: OpenDocuments,
        store: Store,
        updates: AcceptedUpdates,
        rooms: RoomStates,
        reading: Reading,
        configs: ConfigChanges,
    ) -> None:
        self._hooks = hooks
        self._documents = documents
        self._store = store
        self._updates = updates
        self._rooms = rooms
        self._reading = reading
        self._configs = configs

    def tell(self, accepted: Sequence[Accepted]) -> None:
        """Run the hooks; the config first, since it decides what else counts."""
        configs = [done for done in accepted if done.document.place.kind == "config"]
        for room_id in {done.document.place.room_id: None for done in configs}:
            if room_id is not None:
                of_room = [done for done in configs if done.document.place.room_id == room_id]
                last = of_room[-1]
                self._configs.changed(room_id, last.envelope.signer, last.seq, local=last.local)
        with self._reading.unchanged():
            for done in accepted:
                if done.document.place.kind != "config":
                    for change in self._changes(done):
                        self._hooks.after_write(change)

    def _changes(self, done: Accepted) -> list[Happened]:
        document, signer = done.document, done.envelope.signer
        datatype = self._documents.datatype_of(document)
        if datatype is None or not self._hooks.watched(datatype.id):
            return []
        name = datatype.entry_id
        found = [
            _happened(done, datatype, entry.item.clock, Change.INSERT, str(entry.fields[name]), fields=entry.fields)
            for entry in done.plan.entries
        ]
        for write in done.plan.writes:
            node = document.elements.node(write.located.entry) if write.located.entry is not None else None
            entry_id = node.entry_id if node is not None else None
            path, value = write.located.path, write.value
            found.append(_happened(done, datatype, write.item.clock, Change.UPDATE, entry_id, path=path, value=value))
        room_id, part = document.place.room_id, document.room_part
        if room_id is None:
            return found
        removed = self._removed(done, datatype) if document.place.kind == "index" else []
        return removed + [change for change in found if self._rooms.counts(room_id, signer, part, change.item)]

    def _removed(self, done: Accepted, datatype: Datatype) -> list[Happened]:
        """Return what an update takes away by deleting it, as other implementations do, where that counts.

        Most deletions only clear what the same update has written over.
        """
        document, update = done.document, self._updates.read(done.seq)
        overwritten = {item.origin for item in update.items}
        found: list[Happened] = []
        for cut in update.deletions:
            if cut.length <= len(update.items) and all(
                (cut.client, cut.clock + at) in overwritten for at in range(cut.length)
            ):
                continue
            trust, number = self._store.trust, document.row.number
            rows = trust.writes_between(number, cut.client, cut.clock, cut.length)
            if not rows or trust.is_deleted(number, done.envelope.signer, cut, done.seq, MAX_LOOKED_BACK):
                continue  # nothing is told of it, or the same was told
            for row in rows:
                located = document.locate((row.client, row.clock))
                node = document.elements.node(row.entry) if row.entry is not None else None
                if located is None or node is None or located.nested or (row.client, row.clock) in overwritten:
                    continue
                if self._reading.taken_away(document, node, located.path, done.envelope.signer):
                    found.append(_happened(done, datatype, row.clock, Change.UPDATE, node.entry_id, path=located.path))
        return found


def _happened(
    done: Accepted,
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
