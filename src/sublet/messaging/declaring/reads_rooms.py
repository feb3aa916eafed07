"""What hooks of several phases read alike: documents, texts, indexes, and the epochs of entities (ezagent 2.2)."""

from __future__ import annotations

from typing import Protocol

from sublet.messaging.identities.epochs import Epochs
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.ports.store import Store
from sublet.messaging.reading.reading import Reading
from sublet.messaging.schema.fields import Fields
from sublet.messaging.texts.texts import Texts
from sublet.protocol.ezagent.ids import EntityId


class _HasReading(Protocol):
    @property
    def reading(self) -> Reading: ...


class _HasEpochs(Protocol):
    @property
    def epochs(self) -> Epochs: ...


class _HasDocuments(_HasReading, Protocol):
    @property
    def store(self) -> Store: ...
    @property
    def documents(self) -> OpenDocuments: ...
    @property
    def texts(self) -> Texts: ...


class ReadsMaps:
    """The context of a hook that reads map documents, by the parts that it has."""

    _parts: _HasReading

    def read_document(self, doc_id: str) -> Fields:
        """Return a map document as it counts."""
        return self._parts.reading.map_document(doc_id)


class ReadsEpochs:
    """The context of a hook that asks for epochs, by the parts that it has."""

    _parts: _HasEpochs

    def epoch_of(self, entity: EntityId) -> str | None:
        """Return the epoch of an entity's daemon, as it is known last."""
        epoch = self._parts.epochs.of(entity)
        return epoch.hex() if epoch is not None else None


class ReadsRooms(ReadsMaps):
    """The context of a hook that reads all that a room holds, by the parts that it has."""

    _parts: _HasDocuments

    def elements(self, doc_id: str) -> list[Fields]:
        """Return the elements of an array document that count, in order."""
        if self._parts.store.find_document(doc_id) is None:
            return []
        return list(self._parts.reading.elements(self._parts.documents.open(doc_id)))

    def text(self, doc_id: str) -> str:
        """Return the text of a document as it counts."""
        return self._parts.texts.read(doc_id)

    def scan_index(self, index: str, key: str, limit: int, below: str | None = None) -> list[IndexEntry]:
        """Return entries of an index, highest rank first; only those of a lower rank than ``below``."""
        return self._parts.store.scan_index(index, key, limit, below)
