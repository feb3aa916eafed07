"""The encoder of single edits: appending to arrays, setting keys of maps and editing texts, byte for byte as yrs does.

yrs walks an array to find its end; these edits name the item that they follow instead, so that they cost the same in a
room of any size (DESIGN 6.8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from sublet.protocol.ezagent.yjs.update import ANY, MAP, STRING, TYPE, Deletion, Item, ItemId, Update, Value
from sublet.protocol.ezagent.yjs.writer import write_number, write_text, write_value

_ORIGIN = 128
_RIGHT = 64
_KEY = 32


class Nested(dict[str, "Value | Nested"]):
    """A nested shared map, where a plain ``dict`` is one value."""


Fields: TypeAlias = "Mapping[str, Value | Nested]"


class Transaction:
    """One update of one client while it is made.

    Args:
        client: the writer's client id.
        clock: the writer's next clock in this document.
    """

    def __init__(self, client: int, clock: int) -> None:
        self.client = client
        self.start = clock
        self.clock = clock
        self._body = bytearray()
        self._own = bytearray()
        write_number(self._own, client)
        self._items: list[Item] = []
        self._overwritten: list[ItemId] = []
        self._cut: list[Deletion] = []

    def append_maps(self, root: str, last: ItemId | None, maps: Sequence[Fields]) -> list[ItemId]:
        """Append maps to a root array.

        Args:
            root: name of the array.
            last: id of its last item, deleted or not; None where it is empty.
            maps: fields of each map, in the order in which they are written.

        Returns:
            The id of each map's item.

        Raises:
            ValueError: a value that has no form; the transaction stays as it was.
        """
        before = self.mark()
        try:
            return self._append_maps(root, last, maps)
        except ValueError:
            self.undo(before)
            raise

    def mark(self) -> tuple[int, int, int]:
        """Return where ``undo`` comes back to."""
        return len(self._body), len(self._items), self.clock

    def undo(self, mark: tuple[int, int, int]) -> None:
        """Take back the maps that were appended since a mark."""
        del self._body[mark[0] :], self._items[mark[1] :]
        self.clock = mark[2]

    @property
    def size(self) -> int:
        """Return how many bytes the items take so far."""
        return len(self._body)

    def _append_maps(self, root: str, last: ItemId | None, maps: Sequence[Fields]) -> list[ItemId]:
        ids: list[ItemId] = []
        for fields in maps:
            here = self._struct(TYPE, None, root, last, MAP)
            self._body.append(MAP)
            self._fields(here, fields)
            ids.append((self.client, here))
            last = ids[-1]
        return ids

    def set_key(self, parent: str | ItemId, key: str, previous: ItemId | None, value: Value | Nested) -> ItemId:
        """Set a key of a map.

        Args:
            parent: name of a root map, or the id of a nested one.
            key: the key.
            previous: id of the item that now stands for the key, which this one replaces; None where there is none.
            value: a plain value, or a nested map.

        Returns:
            The id of the item that now stands for the key.
        """
        if previous is not None:
            self._overwritten.append(previous)
        return self.client, self._set(parent, key, previous, value)

    def insert_text(self, root: str, before: ItemId | None, behind: ItemId | None, text: str) -> None:
        """Put text into a root text.

        Args:
            root: name of the text.
            before: the character before it; None at the beginning.
            behind: the character behind it, deleted or not; None at the end.
            text: what to put in.
        """
        body, length = self._body, len(text.encode("utf-16-le")) // 2
        body.append(STRING | (_ORIGIN if before is not None else 0) | (_RIGHT if behind is not None else 0))
        for neighbour in (before, behind):
            if neighbour is not None:
                self._write_id(neighbour)
        told = before is None and behind is None
        if told:
            body.append(1)
            body += _name(root)
        write_text(body, text)
        self._items.append(Item(self.clock, length, STRING, before, behind, root if told else None, None, text))
        self.clock += length

    def delete(self, cut: Deletion) -> None:
        """Take characters out of a text."""
        self._cut.append(cut)

    def update(self) -> Update:
        """Return the update as the decoder returns it from ``encode``, without decoding it."""
        return Update(self.client, self.start, self.clock, self._items, self._deletions())

    def encode(self) -> bytes:
        """Return the update."""
        out = bytearray()
        write_number(out, 1)
        write_number(out, len(self._items))
        write_number(out, self.client)
        write_number(out, self.start)
        out += self._body
        _write_deletions(out, self._deletions())
        return bytes(out)

    def _deletions(self) -> list[Deletion]:
        return _joined([*(Deletion(client, clock, 1) for client, clock in self._overwritten), *self._cut])

    def _set(self, parent: str | ItemId, key: str, previous: ItemId | None, value: Value | Nested) -> int:
        if isinstance(value, Nested):
            here = self._struct(TYPE, key, parent, previous, MAP)
            self._body.append(MAP)
            self._fields(here, value)
        else:
            here = self._struct(ANY, key, parent, previous, [value])
            self._body.append(1)
            write_value(self._body, value)
        return here

    def _fields(self, parent_clock: int, fields: Fields) -> None:
        parent = (self.client, parent_clock)
        for key, value in fields.items():
            self._set(parent, key, None, value)

    def _struct(self, kind: int, key: str | None, parent: str | ItemId, origin: ItemId | None, value: object) -> int:
        body, here = self._body, self.clock
        if origin is not None:
            body.append(kind | _ORIGIN | (_KEY if key is not None else 0))
            self._write_id(origin)
        else:
            body.append(kind if key is None else kind | _KEY)
            if isinstance(parent, str):
                body.append(1)
                body += _name(parent)
            else:
                body.append(0)
                self._write_id(parent)
            if key is not None:
                body += _name(key)
        told = origin is None  # where there is an origin, it tells parent and key
        item = Item(here, 1, kind, origin, None, parent if told else None, key if told else None, value)
        self._items.append(item)
        self.clock += 1
        return here

    def _write_id(self, item: ItemId) -> None:
        if item[0] == self.client:  # written once for all: client ids take eight bytes
            self._body += self._own
        else:
            write_number(self._body, item[0])
        write_number(self._body, item[1])


@lru_cache(maxsize=512)
def _name(text: str) -> bytes:
    """Return a name of a root or a key as it is written; there are few, and they come again in every message."""
    out = bytearray()
    write_text(out, text)
    return bytes(out)


def _joined(cuts: list[Deletion]) -> list[Deletion]:
    """Return ranges without gaps between them as one, the highest client ids first, as yrs orders them."""
    joined: list[Deletion] = []
    for cut in sorted(cuts, key=lambda one: (-one.client, one.clock)):
        last = joined[-1] if joined else None
        if last is not None and last.client == cut.client and last.clock + last.length >= cut.clock:
            last.length = max(last.length, cut.clock + cut.length - last.clock)
        else:
            joined.append(Deletion(cut.client, cut.clock, cut.length))
    return joined


def _write_deletions(out: bytearray, cuts: list[Deletion]) -> None:
    by_client: dict[int, list[Deletion]] = {}
    for cut in cuts:
        by_client.setdefault(cut.client, []).append(cut)
    write_number(out, len(by_client))
    for client, of_client in by_client.items():
        write_number(out, client)
        write_number(out, len(of_client))
        for cut in of_client:
            write_number(out, cut.clock)
            write_number(out, cut.length)
