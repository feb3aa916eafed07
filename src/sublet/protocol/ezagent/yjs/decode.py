"""The strict decoder of Yjs updates (version 1): it stands before every library that would take them.

Stricter than Yjs where nothing that a writer makes is lost: an update is one transaction of one writer, so its items
are of one client and follow each other; lengths of zero, gaps inside, bytes at the end, and types that rooms do not use
are refused. So is whatever makes yrs panic or take long (``tests/fuzz``).
"""

from __future__ import annotations

from typing import Final

from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.yjs.reader import Reader
from sublet.protocol.ezagent.yjs.update import (
    ANY,
    ARRAY,
    BINARY,
    DELETED,
    FORMAT,
    HOLE,
    MAP,
    MAX_CLOCK,
    STRING,
    TEXT,
    TYPE,
    Deletion,
    Item,
    ItemId,
    Update,
    Value,
)

MAX_UPDATE_BYTES: Final = 1 << 20
MAX_ITEMS: Final = 1 << 16
MAX_DELETIONS: Final = 1 << 14
_HAS_ORIGIN: Final = 128
_HAS_RIGHT: Final = 64
_HAS_KEY: Final = 32
_SKIP: Final = 10
_FIELD: Final = bytes((ANY | _HAS_KEY, 0))
"""How an item begins that is a key of a map which an item has made."""
_SHORT: Final = 128
_TEXT_VALUE: Final = 119
_CONSTANTS: Final[dict[int, Value]] = {120: True, 121: False, 126: None, 127: None}


def decode_update(data: bytes) -> Update:
    """Return the update in ``data``.

    Raises:
        Refused: ``OVERSIZED``, or ``MALFORMED``.
    """
    if len(data) > MAX_UPDATE_BYTES:
        raise Refused(Refusal.OVERSIZED, f"an update of {len(data)} bytes")
    reader = Reader(data)
    update = Update()
    clients = reader.number()
    if clients > 1:
        raise malformed("an update of more than one client")
    if clients:
        _items(reader, update)
    _deletions(reader, update)
    if reader.place != len(data):
        raise malformed("bytes after the end of an update")
    return update


def _items(reader: Reader, update: Update) -> None:
    count = reader.count()
    if not 0 < count <= MAX_ITEMS:
        raise malformed("no items, or too many")
    update.client = client = reader.client()
    update.start = clock = reader.number()
    append = update.items.append
    field, keys = _FIELD + reader.own, dict[bytes, str]()
    for _ in range(count):
        item = _field(reader, clock, field, keys)
        if item is None:
            item = _item(reader, clock)
        if item.origin is not None and item.origin[0] == client and item.origin[1] >= clock:
            raise malformed("an item that follows itself")
        append(item)
        clock += item.length
        if clock > MAX_CLOCK:
            raise malformed("a clock beyond 32 bits")
    update.end = clock


def _field(reader: Reader, clock: int, field: bytes, keys: dict[bytes, str]) -> Item | None:
    """Read an item that is one field of a map of the same client's, as nearly all are; None where ``_item`` has to.

    It reads what ``_item`` would have read, in one piece; of whatever is not as usual it reads nothing.

    Args:
        reader: stands before the item.
        clock: the item's.
        field: how such an item begins.
        keys: those of the update, each once in memory.
    """
    data, at = reader.data, reader.place
    if not data.startswith(field, at):
        return None
    at += len(field)
    try:
        parent = data[at]
        at += 1
        if parent >= _SHORT:
            more = data[at]
            at += 1
            if more >= _SHORT:
                last = data[at]
                at += 1
                if not 0 < last < _SHORT:
                    return None
                parent = parent & 127 | (more & 127) << 7 | last << 14
            elif more:
                parent = parent & 127 | more << 7
            else:
                return None
        end = at + 1 + data[at]
        if data[at] >= _SHORT or data[end] != 1:
            return None
        raw = data[at + 1 : end]
        key = keys.get(raw)
        if key is None:
            key = keys[raw] = raw.decode()
        kind, at = data[end + 1], end + 2
        value: Value
        if kind == _TEXT_VALUE and data[at] < _SHORT:
            end = at + 1 + data[at]
            if end > len(data):
                return None
            value, at = data[at + 1 : end].decode(), end
        elif kind in _CONSTANTS:
            value = _CONSTANTS[kind]
        else:
            reader.place = end + 1
            value, at = reader.value(), reader.place
    except (IndexError, UnicodeDecodeError):
        return None
    reader.place = at
    return Item(clock, 1, ANY, None, None, (reader.own_client, parent), key, [value])


def _item(reader: Reader, clock: int) -> Item:
    info = reader.byte()
    kind = info & 31
    if kind == HOLE:
        if info != HOLE:
            raise malformed("a hole with neighbours")
        return Item(clock, _length(reader), HOLE, None, None, None, None, None)
    if kind == _SKIP:
        raise malformed("a gap inside an update")
    origin = reader.item() if info & _HAS_ORIGIN else None
    right = reader.item() if info & _HAS_RIGHT else None
    parent: str | ItemId | None = None
    key: str | None = None
    if not info & (_HAS_ORIGIN | _HAS_RIGHT):
        by_name = reader.byte()
        if by_name > 1:
            raise malformed("a parent of no kind")
        parent = reader.text() if by_name else reader.item()
        if info & _HAS_KEY:
            key = reader.text()
    length, value = _content(reader, kind)
    return Item(clock, length, kind, origin, right, parent, key, value)


def _content(reader: Reader, kind: int) -> tuple[int, object]:
    if kind == ANY:
        count = reader.count()
        if count == 1:
            return 1, [reader.value()]
        if not count:
            raise malformed("an item of no length")
        return count, [reader.value() for _ in range(count)]
    if kind == TYPE:
        shared = reader.number()
        if shared not in (ARRAY, MAP, TEXT):
            raise malformed(f"a shared type of kind {shared}")
        return 1, shared
    if kind == STRING:
        text = reader.text()
        if not text:
            raise malformed("an item of no length")
        return len(text.encode("utf-16-le")) // 2, text
    if kind == DELETED:
        return _length(reader), None
    if kind == BINARY:
        return 1, reader.block()
    if kind == FORMAT:
        return 1, (reader.text(), reader.text())
    raise malformed(f"an item of kind {kind}")


def _length(reader: Reader) -> int:
    length = reader.number()
    if not 0 < length <= MAX_ITEMS:
        raise malformed("an item of no length, or too long")
    return length


def _deletions(reader: Reader, update: Update) -> None:
    clients = reader.count()
    seen: set[int] = set()
    for _ in range(clients):
        client = reader.number()
        if client in seen:
            raise malformed("deletions that name a client twice")
        seen.add(client)
        ranges = reader.count()
        if len(update.deletions) + ranges > MAX_DELETIONS:
            raise malformed("too many deletions")
        for _ in range(ranges):
            clock, length = reader.number(), reader.number()
            if not length or clock + length > MAX_CLOCK:
                raise malformed("a deletion of no length, or beyond 32 bits")
            update.deletions.append(Deletion(client, clock, length))
    if not update.items and not update.deletions:
        raise malformed("an update that changes nothing")
