"""Writes as our own entities: refs, fields and contents, signed, staged, and published once they are durable.

Rules: every write runs the hooks before it is signed. A burst of refs of one entity in one document shares an envelope;
a field is written by itself, after what waits. What can't be written leaves the transaction as it was. Weak: of a
burst that is refused as a whole nothing is kept, though only one ref of it was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sublet.messaging.accepting.staging import Staging
from sublet.messaging.documents.document import Document
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.opening.room_order import RoomOrder
from sublet.messaging.ports.outbox import Outbox, Outgoing
from sublet.messaging.quotas.quotas import Quotas
from sublet.messaging.reading.authorise import MAX_KEY_CHARS
from sublet.messaging.reading.reading import Reading
from sublet.messaging.schema.changes import Intent, RunsHooks
from sublet.messaging.schema.datatypes import QOS_DATA, Change
from sublet.messaging.schema.fields import Fields, Written
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.bundle import RecordKind, encode_bundle
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RefId
from sublet.protocol.ezagent.keys import Channel, channel_key
from sublet.protocol.ezagent.order import AFTER
from sublet.protocol.ezagent.ref_shape import MAX_STATUS_CHARS, misfit
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.ezagent.yjs.update import ItemId, Update

MAX_MERGED: Final = 32
"""Refs of one burst that share an envelope."""
MAX_ENTRY_BYTES: Final = 128 << 10
MAX_MERGED_BYTES: Final = 256 << 10


@dataclass(slots=True)
class _Pending:
    transaction: Transaction
    last: ItemId | None
    contents: dict[str, bytes]
    count: int = 0


class Writing:
    """Writes of our own entities.

    Args:
        documents: what is written to.
        order: where refs stand.
        reading: what is there.
        hooks: may change or refuse what is written.
        quotas: how much of ours is kept.
        keyring: the keys of our own entities.
        staging: takes what is written.
        outbox: publishes it.
        now_ms: the clock, Unix milliseconds.
    """

    def __init__(
        self,
        documents: OpenDocuments,
        order: RoomOrder,
        reading: Reading,
        hooks: RunsHooks,
        quotas: Quotas,
        keyring: Keyring,
        staging: Staging,
        outbox: Outbox,
        now_ms: Callable[[], int],
    ) -> None:
        self._documents = documents
        self._order = order
        self._reading = reading
        self._hooks = hooks
        self._quotas = quotas
        self._keyring = keyring
        self._staging = staging
        self._outbox = outbox
        self._now_ms = now_ms
        self._pending: dict[tuple[EntityId, str], _Pending] = {}

    def append(self, entity: EntityId, doc_id: str, fields: Fields, contents: dict[str, bytes] | None = None) -> Fields:
        """Add an element to an array document, after the hooks; durable after the engine's next ``commit``.

        Args:
            entity: one of our own.
            doc_id: the document.
            fields: its fields, in the order in which they are written.
            contents: immutable contents that go with it, by id.

        Returns:
            The fields as they are written.

        Raises:
            SubletError: a hook refuses it.
        """
        document = self._documents.open(doc_id)
        datatype = self._documents.datatype_of(document)
        if datatype is None:
            raise _unknown(doc_id)
        self._quotas.may_write(document.place, entity)
        contents = dict(contents or {})
        intent = Intent(datatype.id, Change.INSERT, doc_id, document.place.room_id, entity, dict(fields))
        self._hooks.pre_send(intent, contents)
        self._add(entity, document, intent.fields, contents)
        return intent.fields

    def _add(self, entity: EntityId, document: Document, fields: Fields, contents: dict[str, bytes]) -> None:
        """Add an element to what its entity has begun to write; what can't be written leaves that as it was."""
        key = (entity, document.row.doc_id)
        pending = self._pending.get(key)
        if pending is None:
            if document.is_shard and any(name != document.row.doc_id for _, name in self._pending):
                self.flush()  # what waits for another shard stands before this
            client, tail = self._keyring.client(entity, document.row.doc_id), document.elements.chain.tail
            pending = _Pending(Transaction(client, document.next_clock(client)), tail.id if tail else None, {})
            self._place(document, fields)
        mark = pending.transaction.mark()
        try:
            if max(map(len, fields)) > MAX_KEY_CHARS:
                raise ValueError("a key is too long")
            wrong = misfit(fields) if document.place.kind == "index" else None
            if wrong is not None:
                raise ValueError(f"a message has no such {wrong[:MAX_STATUS_CHARS]!r}")
            last = pending.transaction.append_maps(document.root, pending.last, [fields])[-1]
            if pending.transaction.size - mark[0] > MAX_ENTRY_BYTES:
                pending.transaction.undo(mark)
                raise ValueError(f"it takes more than {MAX_ENTRY_BYTES} bytes")
        except ValueError as error:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"this can't be written: {error}") from None
        pending.last = last
        pending.contents |= contents
        pending.count += 1
        document.unwritten += 1
        self._pending[key] = pending
        if pending.count >= MAX_MERGED or pending.transaction.size > MAX_MERGED_BYTES:
            self.flush()

    def _place(self, document: Document, fields: Fields) -> None:
        """Name in a ref what was seen last, where its own time and the ref on its left would put it before that."""
        if document.is_shard:
            after = self._order.beyond(document, str(fields["ref_id"]))
            if after is not None:
                fields[AFTER] = str(after)

    def set_field(
        self, entity: EntityId, doc_id: str, target: RefId | None, path: tuple[str, ...], value: Written
    ) -> None:
        """Set one field of an element or of a map document; None takes it away. See ``set_fields``."""
        self.set_fields(entity, doc_id, [(target, path, value)])

    def set_fields(
        self, entity: EntityId, doc_id: str, writes: Sequence[tuple[RefId | None, tuple[str, ...], Written]]
    ) -> None:
        """Set fields in one update.

        Args:
            entity: one of our own.
            doc_id: the document.
            writes: for each field the element or None, its keys, and its value; ``Nested`` makes a shared map.

        Raises:
            SubletError: a hook refuses it, or there is no such element.
        """
        self.flush()
        document = self._documents.open(doc_id)
        datatype = self._documents.datatype_of(document)
        if datatype is None:
            raise _unknown(doc_id)
        self._quotas.may_write(document.place, entity)
        contents: dict[str, bytes] = {}
        client = self._keyring.client(entity, doc_id)
        transaction = Transaction(client, document.next_clock(client))
        made: dict[tuple[RefId | None, tuple[str, ...]], ItemId] = {}
        for target, path, value in writes:
            intent = Intent(datatype.id, Change.UPDATE, doc_id, document.place.room_id, entity, {}, target)
            intent.fields = {"path": path, "value": value}
            self._hooks.pre_send(intent, contents)
            self._set(document, transaction, made, intent)
        self._seal(document, entity, transaction.encode(), transaction.update(), contents)

    def found(self, entity: EntityId, doc_id: str, write: Callable[[Transaction], None]) -> None:
        """Write a new map document's first fields at once, as its author; the hooks for updates don't apply to it."""
        document = self._documents.open(doc_id)
        client = self._keyring.client(entity, doc_id)
        transaction = Transaction(client, document.next_clock(client))
        write(transaction)
        self._seal(document, entity, transaction.encode(), transaction.update(), {})

    def take(self, entity: EntityId, doc_id: str, update: bytes) -> int:
        """Write an update that was made elsewhere, as one of our own, and return its envelope's size in bytes.

        Its hooks have run.

        Raises:
            SubletError: such a document can't hold it.
        """
        document = self._documents.open(doc_id)
        self._quotas.may_write(document.place, entity)
        return self._seal(document, entity, update, decode_update(update), {})

    def drop_pending(self) -> None:
        """Forget what waits, after a commit that failed."""
        self._pending.clear()
        self._outbox.clear()

    def flush(self) -> None:
        """Write what waits: the elements of one entity and document share an envelope."""
        pending, self._pending = self._pending, {}
        for (_, doc_id), burst in pending.items():
            self._documents.open(doc_id).unwritten -= burst.count
        for (entity, doc_id), burst in pending.items():
            transaction = burst.transaction
            self._seal(self._documents.open(doc_id), entity, transaction.encode(), transaction.update(), burst.contents)

    def _set(
        self,
        document: Document,
        transaction: Transaction,
        made: dict[tuple[RefId | None, tuple[str, ...]], ItemId],
        intent: Intent,
    ) -> None:
        path, value = intent.fields["path"], intent.fields["value"]
        entry: ItemId | None = None
        if intent.target is not None:
            node = document.elements.named(intent.target)
            if node is None:
                raise SubletError(
                    LocalCode.NOT_FOUND, "no such message in this part of the room", "Read the room again."
                )
            entry = node.id
        above = (intent.target, path[:-1])
        if above in made:
            parent: str | ItemId = made[above]
            previous = made.get((intent.target, path))
        else:
            try:
                container, there = self._reading.latest(document, entry, path)
            except KeyError as key:
                raise SubletError(
                    LocalCode.CONFLICT, f"there is no {key} to write to", "The room does not offer it."
                ) from None
            parent = container or entry or document.root
            previous = made.get((intent.target, path), there)
        try:
            made[intent.target, path] = transaction.set_key(parent, path[-1], previous, value)
        except ValueError as error:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"this can't be written: {error}") from None

    def _seal(
        self, document: Document, entity: EntityId, payload: bytes, update: Update, contents: dict[str, bytes]
    ) -> int:
        name = document.row.doc_id
        if not update.items and not update.deletions:
            return 0  # it says nothing, and nobody would take it
        try:
            envelope = seal(self._keyring.key(entity), entity, name, self._now_ms(), payload)
            self._staging.local(document, envelope, update, contents)
        except Refused as refused:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"this can't be written: {refused.detail}") from refused
        datatype = self._documents.datatype_of(document)
        if datatype is not None and datatype.private:
            return len(envelope.raw)
        attachment = encode_bundle((RecordKind.CONTENT, raw) for raw in contents.values()) if contents else b""
        key = channel_key(name, Channel.UPDATES)
        self._outbox.put(Outgoing(key, envelope.raw, attachment, datatype.qos if datatype else QOS_DATA))
        return len(envelope.raw)


def _unknown(doc_id: str) -> SubletError:
    return SubletError(LocalCode.INVALID_ARGUMENT, f"nothing declares what {doc_id} holds", "Enable its extension.")
