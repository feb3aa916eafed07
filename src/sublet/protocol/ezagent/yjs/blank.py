"""An update with everything that it says taken out: its items are there and deleted, and it deletes nothing.

What somebody had no right to write must not be seen, yet what others wrote beside it has to keep its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from sublet.protocol.ezagent.yjs.model import DELETED, HOLE, Deletion, Item, ItemId, Update
from sublet.protocol.ezagent.yjs.writer import write_number, write_text

_ORIGIN = 128
_RIGHT = 64
_KEY = 32


def blank(update: Update) -> bytes:
    """Return the update's items as deleted ones of the same length and place, and none of its deletions."""
    out = bytearray()
    if not update.items:
        return b"\0\0"
    write_number(out, 1)
    write_number(out, len(update.items))
    write_number(out, update.client)
    write_number(out, update.start)
    for item in update.items:
        _write_item(out, item)
    out.append(0)
    return bytes(out)


def deleting(cuts: Sequence[Deletion]) -> bytes:
    """Return an update that only deletes."""
    out = bytearray([0])
    by_client: dict[int, list[Deletion]] = {}
    for cut in cuts:
        by_client.setdefault(cut.client, []).append(cut)
    write_number(out, len(by_client))
    for client, ranges in by_client.items():
        write_number(out, client)
        write_number(out, len(ranges))
        for cut in ranges:
            write_number(out, cut.clock)
            write_number(out, cut.length)
    return bytes(out)


def _write_item(out: bytearray, item: Item) -> None:
    if item.kind == HOLE:
        out.append(HOLE)
        write_number(out, item.length)
        return
    info = DELETED | (_ORIGIN if item.origin else 0) | (_RIGHT if item.right else 0) | (_KEY if item.key else 0)
    out.append(info)
    for neighbour in (item.origin, item.right):
        if neighbour is not None:
            _write_id(out, neighbour)
    if item.origin is None and item.right is None:
        if isinstance(item.parent, str):
            out.append(1)
            write_text(out, item.parent)
        elif item.parent is not None:
            out.append(0)
            _write_id(out, item.parent)
        if item.key is not None:
            write_text(out, item.key)
    write_number(out, item.length)


def _write_id(out: bytearray, item: ItemId) -> None:
    write_number(out, item[0])
    write_number(out, item[1])
