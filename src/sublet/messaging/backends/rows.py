"""Rows of the message tables and the values that stand for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sublet.messaging.ports.rows import EntryRow, WriteRow
from sublet.protocol.ezagent.yjs.update import ItemId

ENTRY_COLUMNS: Final = (
    "client, clock, length, origin_client, origin_clock, right_client, right_clock, entry_id, signer, seq, shown, rank"
)
WRITE_COLUMNS: Final = (
    "client, clock, entry_client, entry_clock, container_client, container_clock, key, origin_client, origin_clock, "
    "right_client, right_clock, signer, seq, value"
)


def entry_of(row: Sequence[Any]) -> EntryRow:
    """Return the element that ``ENTRY_COLUMNS`` hold."""
    origin, right = _pair(row[3], row[4]), _pair(row[5], row[6])
    return EntryRow(row[0], row[1], row[2], origin, right, row[7], row[8], row[9], bool(row[10]), row[11])


def entry_values(entry: EntryRow) -> tuple[object, ...]:
    """Return what ``ENTRY_COLUMNS`` hold of an element."""
    return (
        entry.client,
        entry.clock,
        entry.length,
        *(entry.origin or (None, None)),
        *(entry.right or (None, None)),
        entry.entry_id,
        entry.signer,
        entry.seq,
        entry.shown,
        entry.rank,
    )


def write_of(row: Sequence[Any]) -> WriteRow:
    """Return the write that ``WRITE_COLUMNS`` hold."""
    return WriteRow(
        row[0],
        row[1],
        _pair(row[2], row[3]),
        _pair(row[4], row[5]),
        row[6],
        _pair(row[7], row[8]),
        _pair(row[9], row[10]),
        row[11],
        row[12],
        bytes(row[13]) if row[13] is not None else None,
    )


def write_values(write: WriteRow) -> tuple[object, ...]:
    """Return what ``WRITE_COLUMNS`` hold of a write."""
    return (
        write.client,
        write.clock,
        *(write.entry or (None, None)),
        *(write.container or (None, None)),
        write.key,
        *(write.origin or (None, None)),
        *(write.right or (None, None)),
        write.signer,
        write.seq,
        write.value,
    )


def _pair(client: int | None, clock: int | None) -> ItemId | None:
    return (client, clock) if client is not None and clock is not None else None
