"""Writing as one of our own entities: refs, fields and contents, signed, durable, then published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sublet.messaging.declaring.contexts import Intent
from sublet.messaging.declaring.declaration import QOS_DATA, Change
from sublet.messaging.documents.document import Document
from sublet.messaging.ports.network import Qos
from sublet.messaging.reading.authorise import MAX_KEY_CHARS
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.bundle import RecordKind, encode_bundle
from sublet.protocol.ezagent.content import sign_ref
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RefId
from sublet.protocol.ezagent.keys import Channel, channel_key
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.ezagent.yjs.model import ItemId, Update

if TYPE_CHECKING:
    from sublet.messaging.engine.engine import Engine

MAX_MERGED: Final = 32
"""Refs of one burst that share an envelope."""
MAX_ENTRY_BYTES: Final = 128 << 10
MAX_MERGED_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is to be published, durable already."""

    key: str
    payload: bytes
    attachment: bytes
    qos: Qos


@dataclass(slots=True)
class _Pending:
    transaction: Transaction
    last: ItemId | None
    contents: dict[str, bytes]
    count: int = 0


class Writing:
    """Writes of our own entities.

    Args:
        engine: what it is a part of.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pending: dict[tuple[EntityId, str], _Pending] = {}
        self.outgoing: list[Outgoing] = []

    def append(
        self, entity: EntityId, doc_id: str, fields: dict[str, Any], contents: dict[str, bytes] | None = None
    ) -> dict[str, Any]:
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
        engine = self._engine
        document = engine.document(doc_id)
        datatype = engine.datatype_of(document)
        if datatype is None:
            raise _unknown(doc_id)
        engine.quotas.may_write(document.place, entity)
        contents = dict(contents or {})
        intent = Intent(datatype.id, Change.INSERT, doc_id, document.place.room_id, entity, dict(fields))
        engine.hooks.pre_send(engine, intent, contents)
        self._add(entity, document, intent.fields, contents)
        return intent.fields

    def _add(self, entity: EntityId, document: Document, fields: dict[str, Any], contents: dict[str, bytes]) -> None:
        """Add an element to what its entity has begun to write; what can't be written leaves that as it was."""
        key = (entity, document.row.doc_id)
        pending = self._pending.get(key)
        if pending is None:
            client, tail = self._engine.client(entity), document.list.tail
            pending = _Pending(Transaction(client, document.next_clock(client)), tail.id if tail else None, {})
        mark = pending.transaction.mark()
        try:
            if max(map(len, fields)) > MAX_KEY_CHARS:
                raise ValueError("a key is too long")
            last = pending.transaction.append_maps(document.root, pending.last, [fields])[-1]
            if pending.transaction.size - mark[0] > MAX_ENTRY_BYTES:
                pending.transaction.undo(mark)
                raise ValueError(f"it takes more than {MAX_ENTRY_BYTES} bytes")
        except ValueError as error:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"this can't be written: {error}") from None
        pending.last = last
        pending.contents |= contents
        pending.count += 1
        self._pending[key] = pending
        if pending.count >= MAX_MERGED or pending.transaction.size > MAX_MERGED_BYTES:
            self.flush()

    def pending(self, doc_id: str) -> int:
        """Return how many elements wait to be written to a document."""
        return sum(pending.count for (_, name), pending in self._pending.items() if name == doc_id)

    def set_field(self, entity: EntityId, doc_id: str, target: RefId | None, path: tuple[str, ...], value: Any) -> None:
        """Set one field of an element or of a map document; None takes it away. See ``set_fields``."""
        self.set_fields(entity, doc_id, [(target, path, value)])

    def set_fields(
        self, entity: EntityId, doc_id: str, writes: Sequence[tuple[RefId | None, tuple[str, ...], Any]]
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
        engine = self._engine
        document = engine.document(doc_id)
        datatype = engine.datatype_of(document)
        if datatype is None:
            raise _unknown(doc_id)
        engine.quotas.may_write(document.place, entity)
        contents: dict[str, bytes] = {}
        client = engine.client(entity)
        transaction = Transaction(client, document.next_clock(client))
        made: dict[tuple[RefId | None, tuple[str, ...]], ItemId] = {}
        for target, path, value in writes:
            intent = Intent(datatype.id, Change.UPDATE, doc_id, document.place.room_id, entity, {}, target)
            intent.fields = {"path": path, "value": value}
            engine.hooks.pre_send(engine, intent, contents)
            self._set(document, transaction, made, intent)
        self._seal(document, entity, transaction.encode(), transaction.update(), contents)

    def found(self, entity: EntityId, doc_id: str, write: Callable[[Transaction], None]) -> None:
        """Write a new map document's first fields at once, as its author; the hooks for updates don't apply to it."""
        document = self._engine.document(doc_id)
        client = self._engine.client(entity)
        transaction = Transaction(client, document.next_clock(client))
        write(transaction)
        self._seal(document, entity, transaction.encode(), transaction.update(), {})

    def take(self, entity: EntityId, doc_id: str, update: bytes) -> int:
        """Write an update that was made elsewhere, as one of our own, and return its envelope's size in bytes.

        Its hooks have run.

        Raises:
            SubletError: such a document can't hold it.
        """
        document = self._engine.document(doc_id)
        self._engine.quotas.may_write(document.place, entity)
        return self._seal(document, entity, update, decode_update(update), {})

    def sign_ref(self, intent: Intent) -> None:
        """Put the author's signature of a ref into its fields."""
        key = self._engine.key(intent.entity)
        intent.fields["signature"] = sign_ref(str(intent.room_id), intent.fields, key)

    def drop_pending(self) -> None:
        """Forget what waits, after a commit that failed."""
        self._pending.clear()
        self.outgoing.clear()

    def flush(self) -> None:
        """Write what waits: the elements of one entity and document share an envelope."""
        pending, self._pending = self._pending, {}
        for (entity, doc_id), burst in pending.items():
            transaction = burst.transaction
            self._seal(
                self._engine.document(doc_id), entity, transaction.encode(), transaction.update(), burst.contents
            )

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
            node = document.list.by_entry.get(intent.target)
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
                container, there = self._engine.reading.latest(document, entry, path)
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
        engine, name = self._engine, document.row.doc_id
        try:
            envelope = seal(engine.key(entity), entity, name, engine.now_ms(), payload)
            engine.intake.local(document, envelope, update, contents)
        except Refused as refused:
            raise SubletError(LocalCode.INVALID_ARGUMENT, f"this can't be written: {refused.detail}") from refused
        datatype = engine.datatype_of(document)
        if datatype is not None and datatype.private:
            return len(envelope.raw)
        attachment = encode_bundle((RecordKind.CONTENT, raw) for raw in contents.values()) if contents else b""
        key = channel_key(name, Channel.UPDATES)
        self.outgoing.append(Outgoing(key, envelope.raw, attachment, datatype.qos if datatype else QOS_DATA))
        return len(envelope.raw)


def _unknown(doc_id: str) -> SubletError:
    return SubletError(LocalCode.INVALID_ARGUMENT, f"nothing declares what {doc_id} holds", "Enable its extension.")
