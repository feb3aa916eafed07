"""The encoder of single edits: appending maps to an array, and setting keys of maps, byte for byte as yrs does.

yrs walks an array to find its end; these edits name the item that they follow instead, so that they cost the same in a
room of any size (DESIGN 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from sublet.protocol.ezagent.yjs.model import ANY, MAP, TYPE, Deletion, Item, ItemId, Update, Value
from sublet.protocol.ezagent.yjs.writer import write_number, write_text, write_value

_ORIGIN = 128
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

    def update(self) -> Update:
        """Return the update as the decoder returns it from ``encode``, without decoding it."""
        return Update(self.client, self.start, self.clock, self._items, _deletions(self._overwritten))

    def encode(self) -> bytes:
        """Return the update."""
        out = bytearray()
        write_number(out, 1)
        write_number(out, len(self._items))
        write_number(out, self.client)
        write_number(out, self.start)
        out += self._body
        _write_deletions(out, self._overwritten)
        return bytes(out)

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


def encode_append(client: int, clock: int, last: ItemId | None, maps: Sequence[Fields], root: str) -> bytes:
    """Return the update that appends ``maps`` to the array ``root``; see ``Transaction.append_maps``."""
    transaction = Transaction(client, clock)
    transaction.append_maps(root, last, maps)
    return transaction.encode()


@lru_cache(maxsize=512)
def _name(text: str) -> bytes:
    """Return a name of a root or a key as it is written; there are few, and they come again in every message."""
    out = bytearray()
    write_text(out, text)
    return bytes(out)


def _deletions(ids: list[ItemId]) -> list[Deletion]:
    """Return items as ranges, the highest client ids first, as yrs orders them."""
    by_client: dict[int, list[int]] = {}
    for client, clock in ids:
        by_client.setdefault(client, []).append(clock)
    return [
        Deletion(client, start, length)
        for client in sorted(by_client, reverse=True)
        for start, length in _ranges(sorted(by_client[client]))
    ]


def _write_deletions(out: bytearray, ids: list[ItemId]) -> None:
    cuts = _deletions(ids)
    clients = list(dict.fromkeys(cut.client for cut in cuts))
    write_number(out, len(clients))
    for client in clients:
        of_client = [cut for cut in cuts if cut.client == client]
        write_number(out, client)
        write_number(out, len(of_client))
        for cut in of_client:
            write_number(out, cut.clock)
            write_number(out, cut.length)


def _ranges(clocks: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for clock in clocks:
        if ranges and ranges[-1][0] + ranges[-1][1] == clock:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((clock, 1))
    return ranges
