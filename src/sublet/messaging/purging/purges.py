"""Decides what is gone for good, by the tombstones of a room that count, and takes it away.

Which tombstones count is decided by the same fold of the config as all else, and what goes with a message by the
message's own signed log. So the same tombstones, logs and config mean the same on every replica, in whatever order they
came: a tombstone that comes before its message waits for it, and one that counts no more (its writer was removed by
somebody who had not seen it) gives back what members still have.

Rules: what is decided is written in the transaction of the change that decides it, and contents are erased there.
Documents and files are noted as due and go after the commit, so a kill leaves them to the next start. Everything here
can be done once more with the same end. On the engine's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import structlog

from sublet.messaging.accepting.accepted import Accepted
from sublet.messaging.events.events import Events
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.opening.accepted_updates import AcceptedUpdates
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.ports.purge_store import Due, DueRow, Kind, PurgedRow
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.ports.store import Store
from sublet.messaging.purging.named import CONTENT_ID, MEDIA, Named, file_of, named_by
from sublet.messaging.reading.candidates import Candidate, candidate_of, first_fields
from sublet.messaging.reading.reading import Reading
from sublet.protocol.ezagent.content import author_of
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId
from sublet.protocol.ezagent.keys import doc_id, parse_doc_id
from sublet.protocol.ezagent.purge import Gone, is_tombstone
from sublet.protocol.ezagent.room.state import RoomState

NAMED_FILES: Final = "ref_of_file"
"""Which messages that are not purged name a file; under a room's id alone stands that all of its messages were read."""
REFUSED: Final = "purge_refused"
"""Whose tombstones that count for nothing were told of, by room."""
PURGED_EVENT: Final = "message.purged"
REFUSED_EVENT: Final = "message.purge_refused"
AT_ONCE: Final = 64
"""Documents that are detached with one transaction."""

log = structlog.get_logger(__name__)


class Purges:
    """See the module.

    Args:
        store: what is here.
        documents: what is open.
        updates: the log's updates, decoded.
        reading: which tombstones count.
        keyring: our own entities.
        events: what is told.
    """

    def __init__(
        self,
        store: Store,
        documents: OpenDocuments,
        updates: AcceptedUpdates,
        reading: Reading,
        keyring: Keyring,
        events: Events,
    ) -> None:
        self._store = store
        self._documents = documents
        self._updates = updates
        self._reading = reading
        self._keyring = keyring
        self._events = events
        self.waits = True
        """Whether something may be due: at the start, what a kill has left."""
        self.missing: list[Callable[[str], None]] = []
        """Told of documents that are wanted again."""
        self.due: list[Callable[[], None]] = []
        """Told that something is to be erased yet."""

    def said(self, room_id: RoomId, ref_id: RefId) -> PurgedRow | None:
        """Return what of a message is gone, by whom and since when; None where nothing of it is."""
        rows = self._store.purges.rows_named(room_id, Kind.REF, ref_id)
        return rows[0] if rows else None

    def settle(self, room_id: RoomId, ref_id: RefId, *, again: bool = False) -> PurgedRow | None:
        """Decide anew what is gone of a message; inside a transaction.

        Args:
            room_id: the room.
            ref_id: the message.
            again: whether what was gone before is taken away once more.

        Returns:
            What is gone; None where nothing is.
        """
        purges = self._store.purges
        gone = self._decided(room_id, ref_id)
        before: dict[tuple[Kind, str], PurgedRow] = {
            (row.kind, row.name): row for row in purges.rows_of(room_id, ref_id) if row.kind is not Kind.FILE
        }
        named = self._named(room_id, ref_id) if gone is not None or before else []
        now: dict[tuple[Kind, str], PurgedRow] = {}
        if gone is not None:
            now[Kind.REF, ref_id] = gone
            for one in named if gone.what is Gone.MESSAGE else ():
                if one.kind is not Kind.FILE:
                    now[one.kind, one.name] = _with(gone, one)
        purges.drop(room_id, [row for key, row in before.items() if key not in now])
        purges.put(room_id, [row for key, row in now.items() if before.get(key) != row])
        for key, row in now.items():
            if again or key not in before or before[key].what is not row.what:
                self._take_away(room_id, row)
        for key, row in before.items():
            if key not in now:
                self._give_back(room_id, row)
        for one in named:
            if one.kind is Kind.FILE:
                self._settle_file(room_id, ref_id, one.name, gone)
        if now.get((Kind.REF, ref_id)) != before.get((Kind.REF, ref_id)):
            self._store.search.doubt(ref_id)
            if gone is not None:
                self._tell(PURGED_EVENT, room_id, ref_id, gone.by, what=str(gone.what))
        self.waits = True
        return gone

    def names_file(self, room_id: RoomId, ref_id: RefId, value: object) -> None:
        """Note that a message that counts names a file; inside a transaction."""
        digest = file_of(value)
        if digest is not None:
            self._settle_file(room_id, ref_id, digest, self.said(room_id, ref_id))

    def reconsider(self, room_id: RoomId, before: RoomState | None, after: RoomState) -> None:
        """Decide those tombstones of a room anew whose writers are something else now; inside a transaction."""
        changed = [
            signer
            for signer in sorted(self._store.purges.signers(room_id))
            if before is None
            or before.entities.get(signer) != after.entities.get(signer)
            or before.users.get(signer) != after.users.get(signer)
            or before.level("events_default") != after.level("events_default")
        ]
        for name in self._store.purges.written_by(room_id, changed):
            self._settle_named(room_id, name)

    def landed(self, accepted: Sequence[Accepted]) -> None:
        """Take what was accepted, whether it counts or not; inside its transaction."""
        doubted: dict[tuple[RoomId, RefId], None] = {}
        for done in accepted:
            place, room_id = done.document.place, done.document.place.room_id
            if room_id is None:
                continue
            if place.kind == "purge" and place.ref_id is not None:
                if self.settle(room_id, place.ref_id) is None:
                    self._refused(room_id, place.ref_id, done.envelope.signer)
            elif place.kind == "index" and self._store.purges.has_any(room_id):
                doubted |= {(room_id, ref_id): None for ref_id in _changed_refs(done)}
        for room_id, ref_id in doubted:
            if self.said(room_id, ref_id) is not None:
                self.settle(room_id, ref_id)

    def settle_some(self, room_id: RoomId, after: str, limit: int) -> str | None:
        """Decide some tombstones anew, as after a start: what follows from them may be lost, or of an older copy.

        Args:
            room_id: the room.
            after: the document after which to go on; empty at first.
            limit: how many.

        Returns:
            After which to go on; None where that was all.
        """
        names = self._store.purges.tombstones(room_id, after, limit)
        if not names:
            return None
        with self._store.transaction():
            for name in names:
                self._settle_named(room_id, name, again=True)
            events = self._events.write()
        self._events.publish(events)
        return names[-1]

    def run(self) -> None:
        """Take documents out of their rooms that are due; outside of a transaction, after a commit."""
        purges = self._store.purges
        while rows := purges.due(Due.DOCUMENT, AT_ONCE):
            with self._store.transaction():
                for row in rows:
                    self._detach(row)
                purges.drop_due(rows)
            for row in rows:
                self._documents.close(row.name)
            self._updates.forget()
        self._erase_drafts()
        self.waits = False
        for told in self.due:
            told()

    def erase_some(self) -> bool:
        """Erase some rows that are due; outside of a transaction. Tell whether there may be more."""
        purges = self._store.purges
        for row in purges.due(Due.ROWS, 1):
            with self._store.transaction():
                if not purges.erase_some(int(row.name)):
                    purges.drop_due([row])
            return True
        return False

    def _erase_drafts(self) -> None:
        """Erase what ours began to write where they have purged; what is being written now stays until it is sent."""
        purges = self._store.purges
        for row in purges.due(Due.DRAFT, AT_ONCE):
            if self._reading.map_document(row.name):
                continue
            with self._store.transaction():
                purges.detach(row.name, "")
                self._keyring.renew(row.name)
                purges.drop_due([row])
            self._documents.close(row.name)

    def _settle_named(self, room_id: RoomId, name: str, *, again: bool = False) -> None:
        ref_id = parse_doc_id(name).ref_id
        if ref_id is not None:
            self.settle(room_id, ref_id, again=again)

    def _refused(self, room_id: RoomId, ref_id: RefId, signer: EntityId) -> None:
        """Tell that somebody has purged who may not, once of each in a room: whoever floods tells nothing more."""
        if not self._store.scan_index(REFUSED, f"{room_id}/{signer}", 1):
            self._store.put_index([IndexEntry(REFUSED, f"{room_id}/{signer}", ref_id, {})])
            self._tell(REFUSED_EVENT, room_id, ref_id, signer)

    def _tell(self, kind: str, room_id: RoomId, ref_id: RefId, by: EntityId, **more: str) -> None:
        self._events.tell(kind, room_id, {"room_id": room_id, "ref_id": ref_id, "by": by, **more})

    def _decided(self, room_id: RoomId, ref_id: RefId) -> PurgedRow | None:
        """Return what the tombstones of a message that count say together; the first that was said is told."""
        name = doc_id("purge", room_id=room_id, ref_id=ref_id)
        row = self._store.find_document(name)
        if row is None:
            return None
        document = self._documents.open(name)
        counting: list[tuple[str, EntityId, Gone]] = []
        for write in self._store.writes(row.number, None):
            one = candidate_of(write)
            item, path = (write.client, write.clock), (one.key,)
            if (
                one.container is None
                and is_tombstone(path, one.value)
                and self._reading.write_counts(document, path, one.signer, item, first=one.origin is None)
            ):
                counting.append((str(one.value), one.signer, Gone(one.key)))
        if not counting:
            return None
        whole = [one for one in counting if one[2] is Gone.MESSAGE]
        at, by, what = min(whole or counting)
        return PurgedRow(Kind.REF, ref_id, ref_id, "", what, by, at)

    def _named(self, room_id: RoomId, ref_id: RefId) -> list[Named]:
        """Return what the elements with the id of a message name, of which there may be several."""
        found: dict[Named, None] = {}
        for row, item, author in self._store.purges.elements(room_id, ref_id):
            document = self._documents.open(row.doc_id)
            node = document.elements.node(item)
            writes: list[Candidate] = [] if node is None else first_fields(node, self._updates.read(node.seq))
            writes += [candidate_of(write) for write in self._store.writes(row.number, item)]
            found |= dict.fromkeys(named_by(room_id, author, writes))
        return list(found)

    def _take_away(self, room_id: RoomId, row: PurgedRow) -> None:
        purges = self._store.purges
        if row.kind is Kind.CONTENT:
            for number, raw in purges.content_documents(room_id, row.name):
                if author_of(raw) == row.author:  # nobody takes another's away by naming it
                    purges.erase_content(number, row.name)
        elif row.kind is Kind.DOCUMENT:
            purges.put_due([DueRow(Due.DOCUMENT, room_id, row.name, row.ref_id.encode())])
        elif row.kind is Kind.REF and row.what is Gone.MESSAGE:
            for _, _, author in purges.elements(room_id, row.ref_id):
                if author in self._keyring.local:
                    draft = doc_id("draft", room_id=room_id, entity_id=author)
                    purges.put_due([DueRow(Due.DRAFT, room_id, draft)])

    def _give_back(self, room_id: RoomId, row: PurgedRow) -> None:
        """Have asked for what a tombstone took away that counts no more, from members who have it still."""
        log.warning("a tombstone counts no more", room=room_id, message=row.ref_id)
        if row.kind is Kind.CONTENT and not self._store.purges.is_gone(room_id, Kind.CONTENT, row.name):
            self._store.purges.put_due([DueRow(Due.LACKING, room_id, row.name, row.ref_id.encode())])
        elif row.kind is Kind.DOCUMENT:
            self._want(row.name)

    def _settle_file(self, room_id: RoomId, ref_id: RefId, digest: str, gone: PurgedRow | None) -> None:
        """Decide whether a file is gone: it is once no message names it any more that is not purged."""
        store, key = self._store, f"{room_id}/{digest}"
        self._read_files(room_id)
        if gone is None:
            store.put_index([IndexEntry(NAMED_FILES, key, ref_id, {})])
        else:
            store.drop_index(NAMED_FILES, key, ref_id)
        before = store.purges.rows_named(room_id, Kind.FILE, digest)
        is_named = bool(store.scan_index(NAMED_FILES, key, 1))
        if is_named and before:
            store.purges.drop(room_id, before)
            self._want(doc_id("blob_ref", room_id=room_id, hash=digest))
        elif not is_named and not before and gone is not None:
            row = PurgedRow(Kind.FILE, digest, "", "", gone.what, gone.by, gone.at)
            store.purges.put(room_id, [row])
            name = doc_id("blob_ref", room_id=room_id, hash=digest)
            store.purges.put_due(
                [DueRow(Due.DOCUMENT, room_id, name, ref_id.encode()), DueRow(Due.FILE, room_id, digest)]
            )

    def others_with(self, room_id: RoomId, ref_id: RefId, digest: str) -> bool:
        """Tell whether another message of a room names a file that is not purged; outside of a transaction."""
        with self._store.transaction():
            self._read_files(room_id)
        entries = self._store.scan_index(NAMED_FILES, f"{room_id}/{digest}", 2)
        return any(entry.rank != ref_id for entry in entries)

    def _read_files(self, room_id: RoomId) -> None:
        """Note which messages name files, once in each room: those of before this was noted as they came."""
        if self._store.scan_index(NAMED_FILES, room_id, 1):
            return
        self._store.put_index([IndexEntry(NAMED_FILES, room_id, "", {})])
        for row, item, ref_id in self._store.purges.elements_with(room_id, MEDIA):
            node = self._documents.open(row.doc_id).elements.node(item)
            if node is None or self.said(room_id, ref_id) is not None:
                continue
            for one in named_by(room_id, node.signer, first_fields(node, self._updates.read(node.seq))):
                if one.kind is Kind.FILE:
                    self._store.put_index([IndexEntry(NAMED_FILES, f"{room_id}/{one.name}", ref_id, {})])

    def _detach(self, row: DueRow) -> None:
        place = parse_doc_id(row.name)
        kind, name = (Kind.FILE, place.hash or "") if place.kind == "blob_ref" else (Kind.DOCUMENT, row.name)
        if not self._store.purges.is_gone(row.room_id, kind, name):
            return  # the tombstone counts no more
        tombstone = doc_id("purge", room_id=row.room_id, ref_id=row.mark.decode())
        self._store.purges.detach(row.name, tombstone)
        self._keyring.renew(row.name)

    def _want(self, name: str) -> None:
        for told in self.missing:
            told(name)


def _changed_refs(done: Accepted) -> Iterator[RefId]:
    """Yield the ids of the messages of which an update says what they name."""
    for entry in done.plan.entries:
        yield str(entry.fields["ref_id"])
    for write in done.plan.writes:
        located = write.located
        node = done.document.elements.node(located.entry) if located.entry is not None else None
        if node is not None and located.path[0] in (CONTENT_ID, MEDIA):
            yield node.entry_id


def _with(gone: PurgedRow, named: Named) -> PurgedRow:
    return PurgedRow(named.kind, named.name, gone.ref_id, named.author, gone.what, gone.by, gone.at)
