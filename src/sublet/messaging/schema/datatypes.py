"""What a declaration says about data: datatypes, annotations, and who else may write them (ezagent 2.5).

Values only: the schema that is made of them is in ``schema.py``, and nothing here knows of hooks or of an engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from sublet.messaging.ports.network import Priority, Qos
from sublet.messaging.schema.fields import Fields
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.keys import DocumentPlace
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.ezagent.yjs.update import ItemId


class Origin(StrEnum):
    """Where a declaration comes from, which decides what it may register."""

    BUILT_IN = "built_in"
    STANDARD = "standard"
    THIRD_PARTY = "third_party"


class Change(StrEnum):
    """What happens to the data that a hook watches."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    ANY = "any"


class AnnotationPlace(StrEnum):
    """On what an annotation stands (ezagent 2.5)."""

    ON_REF = "on_ref"
    ON_ROOM_CONFIG = "on_room_config"
    ON_PROFILE = "on_profile"
    ON_ENTITY = "on_entity"
    STANDALONE_DOC = "standalone_doc"
    EPHEMERAL = "ephemeral"


QOS_CONFIG: Final = Qos(Priority.REAL_TIME, droppable=False)
QOS_DATA: Final = Qos(Priority.DATA, droppable=False)
QOS_LOW: Final = Qos(Priority.DATA_LOW, droppable=True)
"""The classes of ezagent 3.3."""


@dataclass(frozen=True, slots=True)
class Datatype:
    """A data structure that is stored and synchronised.

    Args:
        id: unique name.
        storage_type: how it is kept.
        key_pattern: where, with ``{state|updates}`` at the end for CRDT documents.
        persistent: whether it outlives the process.
        writer_rule: who may write it, in the words of ``protocol.ezagent.writer_rules``.
        qos: how its updates are published.
        entry_id: for arrays, the field that names an element.
        entry_author: for arrays, the field that must hold the signer of the element.
        latest_only: for maps in which everybody writes keys of their own alone, and nothing else decides what counts:
            of what a signer wrote to a key only the last is looked at again, so that reading costs no more with time.
        private: for what is its own entity's alone: it is not published, and told to that entity's devices only.
    """

    id: str
    storage_type: StorageType
    key_pattern: str
    persistent: bool
    writer_rule: str
    qos: Qos = QOS_DATA
    entry_id: str = "ref_id"
    entry_author: str = "author"
    latest_only: bool = False
    private: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    """Information that stands on somebody else's data, in the namespace ``ext.{name}``.

    Args:
        place: on what it stands.
        name: the namespace, without ``ext.``.
        description: the shape of its value, for people.
        writer_rule: who may write it.
        signed: whether the author's signature of the ref covers it.
        nested: whether it is a shared map that several write; the document's author makes it with the document, so that
            two first writers never lose one side (DESIGN 6.3).
    """

    place: AnnotationPlace
    name: str
    description: str
    writer_rule: str = "message author"
    signed: bool = False
    nested: bool = False


class ReadsMaps(Protocol):
    """Reads map documents, such as the list of who may edit a text."""

    def map_document(self, doc_id: str) -> Fields:
        """Return a map document as it counts; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write to a map or a text, as a ``Widening`` is asked about it.

    ``of_member`` tells that it counts as a write of a member of the room with the power to write.
    """

    place: DocumentPlace
    path: tuple[str, ...]
    signer: EntityId
    item: ItemId
    of_member: bool


@dataclass(frozen=True, slots=True)
class Widening:
    """Lets more entities write another declaration's datatype than its rule does; for the specification's own alone.

    Args:
        datatype: its id.
        counts: tells whether a write counts all the same, by what map documents say.
    """

    datatype: str
    counts: Callable[[ReadsMaps, Write], bool]
