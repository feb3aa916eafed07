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

from sublet.messaging.schema.datatypes import Annotation, Change, Datatype, Origin, Widening

if TYPE_CHECKING:
    from sublet.messaging.declaring.after_read import AfterRead
    from sublet.messaging.declaring.after_write import AfterWrite
    from sublet.messaging.declaring.operating import OperationContext
    from sublet.messaging.declaring.pre_send import PreSend

MIN_THIRD_PARTY_PRIORITY: Final = 100
"""Hooks of third parties come after those of the specification (DESIGN 6.1)."""
ANY_DATATYPE: Final = "*"


class Phase(StrEnum):
    """When a hook runs (ezagent 2.2)."""

    PRE_SEND = "pre_send"
    AFTER_WRITE = "after_write"
    AFTER_READ = "after_read"


class Refresh(StrEnum):
    """When an index is brought up to date (ezagent 2.4)."""

    ON_CHANGE = "on_change"
    ON_DEMAND = "on_demand"
    PERIODIC = "periodic"


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
    extension: str | None = None
    """The extension that it belongs to; the registry fills it in, and leaves it out for built-ins."""


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
