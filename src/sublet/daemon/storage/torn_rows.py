"""Rows of the database that can't be used: moved out of it into files, and told (``disk.set_aside``).

A disk, or another program, can leave a row that is no JSON, or no record of this version. Such a row must not keep the
daemon from starting, nor hide the rows beside it. Every question about many rows is asked here, so that no store has
to think of it. What can't be put into a file, as on a full disk, stays in the database and is left out.
"""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from sublet.daemon.storage.store import Store
from sublet.disk.set_aside import SetAside
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line

TORN: Final = (ValueError, TypeError, KeyError, OverflowError, RecursionError, SubletError)
"""What making something of a row raises where the row is torn."""
LAST_MOMENT: Final = 253_402_300_799.0
"""Unix seconds at the end of the year 9999; what is later is no time that can be shown."""
MAX_LEFT: Final = 1_000
"""Torn rows that stayed in the database and are remembered, so that each is told once."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RowsOf:
    """A table, and the column that names its rows."""

    table: str
    key: str = "id"


@dataclass(frozen=True, slots=True)
class _Torn:
    key: bytes
    raw: bytes
    why: str


class TornRows:
    """Reads rows, and sets those aside that are torn.

    Args:
        store: the open database.
        aside: takes torn rows; without it, one of them fails the question.
    """

    def __init__(self, store: Store, aside: SetAside | None) -> None:
        self._store = store
        self._aside = aside
        self._left: dict[tuple[str, bytes], None] = {}

    async def sound(
        self,
        rows: RowsOf,
        make: Callable[[sqlite3.Row], T],
        rest: str = "",
        values: Sequence[str | int | float] | dict[str, str | float] = (),
        *,
        columns: str = "*",
        raw: Callable[[sqlite3.Row], bytes] | None = None,
    ) -> list[T]:
        """Return what ``make`` makes of each row. Torn rows are set aside, and the others asked for once more.

        Args:
            rows: the table.
            make: raises one of ``TORN`` where the row is torn.
            rest: what follows ``FROM table``; a constant.
            values: for its placeholders.
            columns: what to read; constants.
            raw: the bytes that are kept of a torn row; by default all of its columns.

        Raises:
            SubletError: ``UNAVAILABLE`` where a row is torn and nobody takes it, or the disk fails.
        """
        query = f"SELECT {columns}, CAST({rows.key} AS BLOB) AS row_key FROM {rows.table} {rest}"  # noqa: S608 - constants

        while True:
            found: list[T] = []
            torn: list[_Torn] = []
            for row in await self._store.read(lambda connection: connection.execute(query, values).fetchall()):
                try:
                    found.append(make(row))
                except TORN as error:
                    why = "it is no record of this version: " + clean_line(str(error), 200)
                    torn.append(_Torn(bytes(row["row_key"]), (raw or _all_columns)(row), why))
            if not torn or not await self._set_aside(rows, torn):
                return found

    async def set_aside(self, rows: RowsOf, torn: Sequence[tuple[bytes, bytes, str]]) -> bool:
        """Move rows, each given by its key, its bytes and why, out of the database; tell if any has gone."""
        return await self._set_aside(rows, [_Torn(*one) for one in torn])

    async def _set_aside(self, rows: RowsOf, torn: Sequence[_Torn]) -> bool:
        if self._aside is None:
            raise SubletError(LocalCode.UNAVAILABLE, f"a row of {rows.table} is no record", "Restore the database.")
        gone: list[_Torn] = []
        for row in torn:
            if (rows.table, row.key) in self._left:
                continue
            name = row.key.decode("utf-8", "backslashreplace")
            kept = await asyncio.to_thread(self._aside.keep, f"{rows.table}/{name}", row.raw, row.why)
            log.warning("a record was set aside", table=rows.table, id=name, reason=row.why)
            if kept.kept_as:
                gone.append(row)
            elif len(self._left) < MAX_LEFT:
                self._left[rows.table, row.key] = None

        def work(connection: sqlite3.Connection) -> None:
            delete = f"DELETE FROM {rows.table} WHERE CAST({rows.key} AS BLOB) = ?"  # noqa: S608 - constants
            connection.executemany(delete, [(row.key,) for row in gone])

        if gone:
            await self._store.write(work)
        return bool(gone)


def a_moment(value: float) -> float:
    """Return ``value``, in Unix seconds, if it is a time that can be shown.

    Raises:
        ValueError: it is none.
    """
    if not math.isfinite(value) or not 0 <= value <= LAST_MOMENT:
        raise ValueError("a time is none")
    return value


def a_moment_or_none(value: float | None) -> float | None:
    """As ``a_moment``, for a column that may be empty."""
    return None if value is None else a_moment(value)


def an_object(text: str) -> dict[str, object]:
    """Return the JSON object in ``text``.

    Raises:
        ValueError: there is none.
    """
    found: object = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def _all_columns(row: sqlite3.Row) -> bytes:
    shown = {
        name: value.hex() if isinstance(value, bytes) else value for name, value in zip(row.keys(), row, strict=True)
    }
    shown.pop("row_key", None)
    return json.dumps(shown).encode()
