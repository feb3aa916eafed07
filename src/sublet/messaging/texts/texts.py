"""Texts that are written more than once: merged from those updates of the log that count.

What does not count is taken in as deleted, so that what others have written beside it keeps its place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sublet.messaging.accepting.staging import Staging
from sublet.messaging.documents.document import Document
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.ports.store import Store
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.changes import Intent, RunsHooks
from sublet.messaging.schema.datatypes import Change
from sublet.messaging.texts.text_body import TextBody
from sublet.messaging.texts.text_replay import MAX_STEP_BYTES, MAX_STEP_DELETING, Ended, LeansOnLeftOut, Replay
from sublet.messaging.writing.writing import Writing
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.envelope import Envelope, unpack
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.ezagent.yjs.reader import Reader
from sublet.protocol.ezagent.yjs.update import ItemId, Update, Value

MAX_OPEN_TEXTS: Final = 256
"""More than a page of messages has, of which each may have been edited and so is a text."""
MAX_OPEN_BYTES: Final = 64 << 20
"""Of all open texts together, beside the one that was read last; others are read again from the log."""
MAX_BEGUN: Final = 16
"""How often the log of a text is read from its beginning, before nobody is shown the text."""
_ENVELOPE_BYTES: Final = 2_048
"""What an envelope adds at most."""


@dataclass(slots=True)
class _Open:
    replay: Replay
    rights: object
    size: int = 0
    """Of the replay, in bytes, when it was counted last."""


class Texts:
    """The texts of one engine.

    Args:
        store: the log.
        documents: which documents are open.
        rooms: who is in which room.
        reading: whose writes count.
        keyring: the client ids of our own entities.
        hooks: may refuse an edit.
        writing: writes an edit.
        staging: makes what was written durable.
    """

    def __init__(
        self,
        store: Store,
        documents: OpenDocuments,
        rooms: RoomStates,
        reading: Reading,
        keyring: Keyring,
        hooks: RunsHooks,
        writing: Writing,
        staging: Staging,
    ) -> None:
        self._store = store
        self._documents = documents
        self._rooms = rooms
        self._reading = reading
        self._keyring = keyring
        self._hooks = hooks
        self._writing = writing
        self._staging = staging
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._size = 0
        """Of all open texts, in bytes."""
        documents.closed.append(self.forget)

    def read(self, name: str) -> str:
        """Return the text of a document as it counts; empty where there is none."""
        return self._current(self._documents.open(name)).value

    def replace(self, entity: EntityId, name: str, text: str, marks: Mapping[str, Value]) -> None:
        """Make the text another one, by taking out and putting in only what differs.

        Args:
            entity: one of our own.
            name: the document.
            text: what it shall be.
            marks: keys to set beside it; at least one that changes with every edit.

        Raises:
            SubletError: a hook refuses it.
        """
        before = self.read(name)
        start = _common(before, text)
        end = _common(before[start:][::-1], text[start:][::-1])
        self.edit(entity, name, start, len(before) - end, text[start : len(text) - end], marks)

    def edit(self, entity: EntityId, name: str, start: int, end: int, insert: str, marks: Mapping[str, Value]) -> None:
        """Replace characters of a text; durable after the engine's next ``commit``.

        Raises:
            SubletError: a hook refuses it, or there are no such characters; ``CONFLICT``: nobody would read any more of
                what this process writes into this text.
        """
        document = self._documents.open(name)
        client = self._keyring.client(entity, name)  # which may be another one from then on
        datatype = self._documents.datatype_of(document)
        shared = self._current(document)
        if datatype is None or not 0 <= start <= end <= len(shared.value):
            raise SubletError(LocalCode.INVALID_ARGUMENT, "no such characters in this text", "Read it again.")
        intent = Intent(datatype.id, Change.UPDATE, name, document.place.room_id, entity, {})
        intent.fields = {"path": ("body",), "value": insert}
        self._hooks.pre_send(intent, {})
        here = self._open[name]
        replay = here.replay
        transaction = Transaction(client, document.next_clock(client))
        placed = {key: (document.root, self._set_last(document, replay, key), marks[key]) for key in marks}
        shared.edit(transaction, start, end, insert, placed)
        update = transaction.encode()
        if not replay.has_room(client, len(update) + _ENVELOPE_BYTES):
            raise SubletError(
                LocalCode.CONFLICT,
                "this text was edited too often to be edited any further",
                "Send it as a new message.",
            )
        size = self._writing.take(entity, name, update)
        replay.wrote(transaction.update(), size)
        if self._open.get(name) is here:
            self._count(here)

    def _set_last(self, document: Document, replay: Replay, key: str) -> ItemId | None:
        """Return the item that stands for a key beside a text, of those that were not left out."""
        there = self._reading.writes_of(document, key)
        return next((item for item in reversed(there) if not replay.left_out(*item)), None)

    def may(self, entity: EntityId, name: str) -> bool:
        """Tell whether what one of our own would write into a text now would count."""
        document, client = self._documents.open(name), self._keyring.client(entity, name)
        item = (client, document.next_clock(client))
        return self._reading.write_counts(document, ("body",), entity, item, first=False)

    def steps(self, name: str) -> Iterator[tuple[dict[str, Value], str]]:
        """Yield what each update that counts sets beside the text, with the text after it, the first one first."""
        document = self._documents.open(name)
        self._current(document)
        known = self._open[name].replay
        replay = self._begin(document, whole=known.whole, ended=known.ended)
        for envelope, update, counts in self._log(document, replay):
            if replay.take(envelope, update, counts=counts):
                yield self._marks(document, update), replay.text.value

    def _marks(self, document: Document, update: Update) -> dict[str, Value]:
        marks: dict[str, Value] = {}
        for item in update.items:
            row = self._store.find_write(document.row.number, (update.client, item.clock))
            if row is not None and row.value is not None:
                marks[row.key] = Reader(row.value).value()
        return marks

    def forget(self) -> None:
        """Read everything anew, after a commit that failed."""
        self._open.clear()
        self._size = 0

    def _current(self, document: Document) -> TextBody:
        name = document.row.doc_id
        self._settle(document)
        rights = self._rights(document)
        found = self._open.pop(name, None)
        if found is not None:
            self._size -= found.size
            found.size = 0
        if found is None or found.rights != rights:
            found = _Open(self._begin(document), rights)
        for _ in range(MAX_BEGUN):
            try:
                for envelope, update, counts in self._log(document, found.replay):
                    found.replay.take(envelope, update, counts=counts)
                if not found.replay.is_stale:
                    break
                found = _Open(self._begin(document, whole=found.replay.whole, ended=found.replay.ended), rights)
            except LeansOnLeftOut:
                found = _Open(self._begin(document, whole=True, ended=found.replay.ended), rights)
        else:
            raise SubletError(LocalCode.CONFLICT, "this text can't be read", "Ask its author to send it anew.")
        if found.replay.is_full:  # of more, each replica would have read something else
            raise SubletError(LocalCode.CONFLICT, "this text is too long to be read", "Ask its author to send it anew.")
        self._open[name] = found
        self._count(found)
        while len(self._open) > MAX_OPEN_TEXTS or (len(self._open) > 1 and self._size > MAX_OPEN_BYTES):
            self._size -= self._open.popitem(last=False)[1].size
        return found.replay.text

    def _count(self, opened: _Open) -> None:
        """Count an open text with what it takes now."""
        self._size += opened.replay.size - opened.size
        opened.size = opened.replay.size

    def _begin(self, document: Document, *, whole: bool = False, ended: Ended | None = None) -> Replay:
        store, number, name = self._store, document.row.number, document.row.doc_id
        return Replay(
            TextBody(document.text_root),
            lambda item: item in self._documents.open(name).staged_writes or store.find_write(number, item) is not None,
            whole,
            ended or Ended(),
        )

    def _log(self, document: Document, replay: Replay) -> Iterator[tuple[Envelope, Update, bool]]:
        """Yield what was not read yet, with whether its signer may write it: what only deletes comes last."""
        store, number, more = self._store, document.row.number, True
        while more and not replay.is_full:
            page, more = store.updates_after(number, replay.have, MAX_STEP_BYTES)
            yield from (self._told(document, raw) for raw in page)
        while rows := store.deleting_after(number, replay.deleted_upto, MAX_STEP_DELETING):
            for replay.deleted_upto, raw in rows:
                yield self._told(document, raw)

    def _told(self, document: Document, raw: bytes) -> tuple[Envelope, Update, bool]:
        envelope = unpack(raw)
        update = decode_update(envelope.payload)
        return envelope, update, self._counts(document, envelope.signer, update)

    def _settle(self, document: Document) -> None:
        """Put into the log what was written since the last commit.

        A hook reads a text while what it was told of is being committed. That is in the log by then, and what our own
        entities have written meanwhile waits for the next commit: within this one it could only be lost.
        """
        if document.unsettled and not self._store.in_transaction:
            self._writing.flush()
            self._staging.commit()

    def _rights(self, document: Document) -> object:
        """Return what decides which updates count: while it is the same, so are they."""
        room_id, content_id = document.place.room_id, document.place.content_id
        state = self._rooms.state(room_id) if room_id is not None else None
        forks = dict(document.forks)
        if room_id is None or content_id is None:
            return state, forks
        rights = self._reading.map_document(doc_id("acl", room_id=room_id, content_id=content_id))
        return state, forks, rights

    def _counts(self, document: Document, signer: EntityId, update: Update) -> bool:
        item = (update.client, update.start)
        return self._reading.write_counts(document, ("body",), signer, item, first=False)


def _common(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    length = min(len(one), len(other))
    return next((at for at in range(length) if one[at] != other[at]), length)
