"""An update as it was decoded: what one writer adds in one transaction, and what it deletes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

ItemId: TypeAlias = tuple[int, int]
"""A client's id and the clock of one of its items."""

Scalar: TypeAlias = "bool | int | float | str | bytes | None"
Value: TypeAlias = "Scalar | list[Value] | dict[str, Value]"
"""A plain value in a document. Whole numbers are ``int``, although Yjs knows only doubles."""

MAX_CLIENT: Final = 2**53 - 1
MAX_CLOCK: Final = 2**32 - 1
MAX_VALUE_DEPTH: Final = 16

HOLE: Final = 0
DELETED: Final = 1
BINARY: Final = 3
STRING: Final = 4
FORMAT: Final = 6
TYPE: Final = 7
ANY: Final = 8
"""Kinds of content of an item (Yjs ``ContentRefs``); those that no document here may hold are left out."""

ARRAY: Final = 0
MAP: Final = 1
TEXT: Final = 2
"""Shared types that may be nested."""


@dataclass(slots=True)
class Item:
    """One struct of an update.

    ``parent`` is the name of a root type, the id of a nested type, or None where ``origin`` or ``right`` tell it.
    ``value`` holds a list of values for ``ANY``, the kind of a shared type for ``TYPE``, text for ``STRING``, a pair
    for ``FORMAT``, bytes for ``BINARY``.
    """

    clock: int
    length: int
    kind: int
    origin: ItemId | None
    right: ItemId | None
    parent: str | ItemId | None
    key: str | None
    value: object


@dataclass(slots=True)
class Deletion:
    """A range of items that is deleted."""

    client: int
    clock: int
    length: int


@dataclass(slots=True)
class Update:
    """Items of one client, of clocks ``start`` up to ``end`` (excluded), and deletions; it may only delete."""

    client: int = 0
    start: int = 0
    end: int = 0
    items: list[Item] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
