"""The one declaration format of built-ins and extensions (ezagent 2.5).

A declaration names what it manages (datatypes), when it does something (hooks), what it adds to others' data
(annotations), what can be asked of it (indexes), and what can be done with it (operations that write). Nothing else
exists: Identity and a third party's extension differ only in what they depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sublet.messaging.ports.network import Priority, Qos
from sublet.protocol.ezagent.roots import StorageType

if TYPE_CHECKING:
    from sublet.messaging.declaring.contexts import AfterRead, AfterWrite, PreSend
    from sublet.messaging.declaring.operating import OperationContext
    from sublet.messaging.documents.document import Document
    from sublet.messaging.engine.engine import Engine
    from sublet.protocol.ezagent.ids import EntityId
    from sublet.protocol.ezagent.yjs.model import ItemId

MIN_THIRD_PARTY_PRIORITY: Final = 100
"""Hooks of third parties come after those of the specification (DESIGN 6.1)."""
ANY_DATATYPE: Final = "*"


class Origin(StrEnum):
    """Where a declaration comes from, which decides what it may register."""

    BUILT_IN = "built_in"
    STANDARD = "standard"
    THIRD_PARTY = "third_party"


class Phase(StrEnum):
    """When a hook runs (ezagent 2.2)."""

    PRE_SEND = "pre_send"
    AFTER_WRITE = "after_write"
    AFTER_READ = "after_read"


class Change(StrEnum):
    """What happens to the data that a hook watches."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    ANY = "any"


class Refresh(StrEnum):
    """When an index is brought up to date (ezagent 2.4)."""

    ON_CHANGE = "on_change"
    ON_DEMAND = "on_demand"
    PERIODIC = "periodic"


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
class Trigger:
    """What a hook watches. ``filter`` is shown to people; ``applies`` decides, by the change's fields or paths."""

    datatype: str
    event: Change = Change.ANY
    filter: str | None = None
    applies: Callable[[Any], bool] | None = None


@dataclass(frozen=True, slots=True)
class _HookBase:
    id: str
    trigger: Trigger
    priority: int


@dataclass(frozen=True, slots=True)
class PreSendHook(_HookBase):
    """May change, annotate or refuse what is about to be written. ``last`` puts it behind all others (signing)."""

    run: Callable[[PreSend], None]
    last: bool = False


@dataclass(frozen=True, slots=True)
class AfterWriteHook(_HookBase):
    """May tell events, feed indexes and start tasks.

    One that ``writes`` to other data runs only where the change was made, so that no peer repeats it.
    """

    run: Callable[[AfterWrite], None]
    writes: bool = False


@dataclass(frozen=True, slots=True)
class AfterReadHook(_HookBase):
    """May add to what a reader gets, never to what is stored."""

    run: Callable[[AfterRead], None]


Hook: TypeAlias = "PreSendHook | AfterWriteHook | AfterReadHook"


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


@dataclass(frozen=True, slots=True)
class Index:
    """Something that can be asked.

    Args:
        id: unique name.
        input: where its data comes from, for people.
        transform: what is made of it, for people.
        refresh: when it is brought up to date.
        operation_id: name of the operation that reads it, or None for an inner one.
        read: the operation.
        rebuild: for ``PERIODIC`` ones, what makes the index anew.
        every_seconds: for ``PERIODIC`` ones, how often.
        goes_back: for operations that read a room backwards by pages: where they come to the beginning of what is here
            (no ``next_cursor``), older months are asked for, and the page is read again.
    """

    id: str
    input: str
    transform: str
    refresh: Refresh
    operation_id: str | None = None
    read: Callable[..., Any] | None = None
    rebuild: Callable[[OperationContext], None] | None = None
    every_seconds: float | None = None
    goes_back: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that can be done, with keyword arguments.

    ``run`` takes an ``OperationContext`` and runs on the engine's thread, where it must not wait. One that ``waits``,
    as for answers of peers, is a coroutine function that takes an ``AskingContext``.
    """

    id: str
    run: Callable[..., Any]
    writes: str | None = None
    waits: bool = False
    goes_back: bool = False


@dataclass(frozen=True, slots=True)
class Widening:
    """Lets more entities write another declaration's datatype than its rule does; for the specification's own alone.

    Args:
        datatype: its id.
        counts: tells whether a write counts all the same.
    """

    datatype: str
    counts: Callable[[Engine, Write], bool]


@dataclass(frozen=True, slots=True)
class Write:
    """One write to a map or a text, as a ``Widening`` is asked about it."""

    document: Document
    path: tuple[str, ...]
    signer: EntityId
    item: ItemId


@dataclass(frozen=True, slots=True)
class Hooks:
    """Hooks by phase."""

    pre_send: tuple[PreSendHook, ...] = ()
    after_write: tuple[AfterWriteHook, ...] = ()
    after_read: tuple[AfterReadHook, ...] = ()


@dataclass(frozen=True, slots=True)
class Declaration:
    """Everything that a built-in or an extension is."""

    id: str
    version: str
    dependencies: tuple[str, ...] = ()
    origin: Origin = Origin.THIRD_PARTY
    datatypes: tuple[Datatype, ...] = ()
    hooks: Hooks = field(default_factory=Hooks)
    annotations: tuple[Annotation, ...] = ()
    indexes: tuple[Index, ...] = ()
    operations: tuple[Operation, ...] = ()
    widenings: tuple[Widening, ...] = ()
    events: tuple[str, ...] = ()
    """Kinds of events that its hooks tell (ezagent 10.3)."""
