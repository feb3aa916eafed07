"""What an update does, resolved: the elements and writes that it brings, each with where it belongs."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.yjs.update import ANY, BINARY, MAP, TYPE, Item, ItemId
from sublet.protocol.ezagent.yjs.writer import write_value

OPAQUE: Final = "\0"
"""First key in the path of what is text: kept in the log, shown by the CRDT library."""


class Located(NamedTuple):
    """Where an item belongs: the element of the array, the nested map, and the keys from there to the item itself."""

    entry: ItemId | None
    container: ItemId | None
    path: tuple[str, ...]
    nested: bool


LOST: Final = Located(None, None, (OPAQUE,), nested=False)
"""Where something is that depends on what forks: kept in the log, and left out everywhere."""


class Fresh:
    """Where the items of an update belong that were looked at so far: one entry for each, however long it is."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._found: list[tuple[int, Located]] = []

    def add(self, item: Item, located: Located) -> None:
        """Add the next item."""
        self._starts.append(item.clock)
        self._found.append((item.clock + item.length, located))

    def get(self, clock: int) -> Located | None:
        """Return where a clock belongs; None where no item has it."""
        place = bisect_right(self._starts, clock) - 1
        if place < 0:
            return None
        end, located = self._found[place]
        return located if clock < end else None


@dataclass(slots=True)
class NewEntry:
    """A new element of an array, with its first fields; a nested map's are a ``dict`` too, named in ``nested``."""

    id: ItemId
    item: Item
    length: int
    fields: dict[str, object]
    nested: set[str]

    def continues(self, item: Item) -> bool:
        """Tell whether an item is the element's next field, which all but a few items of a timeline are."""
        return (
            item.parent == self.id
            and item.clock == self.id[1] + self.length
            and item.length == 1
            and item.key is not None
        )

    def add(self, item: Item) -> Located:
        """Take the element's next field, and return where it belongs.

        Raises:
            Refused: ``WRONG_SHAPE``: it has that field already.
        """
        key, nested = str(item.key), item.kind == TYPE and item.value == MAP
        if key in self.fields:  # readers of the array would take the first of them, and checks the last
            raise Refused(Refusal.WRONG_SHAPE, "an element that has a field twice")
        self.length += 1
        if nested:
            self.nested.add(key)
        self.fields[key] = {} if nested else plain_value(item)
        return Located(self.id, None, (key,), nested)


@dataclass(slots=True)
class NewWrite:
    """A write of one key. ``value`` is None and ``makes_map`` set where it makes a nested map."""

    item: Item
    located: Located
    value: object
    makes_map: bool


@dataclass(slots=True)
class Plan:
    """What an update does, resolved against a document; nothing is changed yet."""

    entries: list[NewEntry] = field(default_factory=list)
    writes: list[NewWrite] = field(default_factory=list)


def encoded(value: object) -> bytes:
    """Return a plain value as it is kept."""
    out = bytearray()
    write_value(out, value)  # type: ignore[arg-type]  # what the decoder returns
    return bytes(out)


def plain_value(item: Item) -> object:
    """Return what an item holds; None where it holds a map, or nothing."""
    if item.kind == ANY and isinstance(item.value, list):
        return item.value[-1]
    return item.value if item.kind == BINARY else None


def put(entry: NewEntry, located: Located, value: object, makes_map: bool) -> None:
    """Write a key of a nested map of an element that is new itself."""
    holder = entry.fields
    for key in located.path[:-1]:
        inner = holder.get(key)
        if not isinstance(inner, dict):
            return
        holder = inner
    if located.path[-1] in holder:
        raise Refused(Refusal.WRONG_SHAPE, "an element that has a field twice")
    if makes_map:
        entry.nested.add("/".join(located.path))
        holder[located.path[-1]] = {}
    else:
        holder[located.path[-1]] = value
