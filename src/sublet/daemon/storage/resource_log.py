"""What is held: resources are journalled before they are taken, and released after they are given back (DESIGN 4.10).

What a killed daemon held is so found again by the next one. Weak: what was journalled may not have been taken yet, so
whoever takes back has to bear that there is nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sublet.daemon.storage.event_log import PRUNE_EVERY, EventLog, load_object
from sublet.daemon.storage.record_tables import marks
from sublet.daemon.times import rfc3339
from sublet.protocol.canonical import JsonValue

KEEP_RELEASED = 10_000
PANEL: Final = "panel"
"""The kind of what a panel holds until it is over: the snapshot that its members share."""


def take(connection: sqlite3.Connection, owner: str, kind: str, detail: Mapping[str, JsonValue]) -> int:
    """Journal in a transaction that ``owner`` is about to take something, and return the number to release it by."""
    cursor = connection.execute(
        "INSERT INTO resources (owner, kind, detail, acquired_at) VALUES (?, ?, ?, ?)",
        (owner, kind, json.dumps(detail), rfc3339()),
    )
    number = cursor.lastrowid
    assert number is not None
    if number % PRUNE_EVERY == 0:
        connection.execute("DELETE FROM resources WHERE released_at IS NOT NULL AND id <= ?", (number - KEEP_RELEASED,))
    return number


def give_back(connection: sqlite3.Connection, owner: str, kinds: Sequence[str]) -> int:
    """Journal in a transaction that resources of ``owner`` were given back, of ``kinds`` or all; return how many."""
    only = f" AND kind IN ({marks(kinds)})" if kinds else ""
    return connection.execute(
        f"UPDATE resources SET released_at = ? WHERE owner = ? AND released_at IS NULL{only}",  # noqa: S608 - marks
        (rfc3339(), owner, *kinds),
    ).rowcount


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """What is taken and given back in the transaction of a record, one commit instead of two.

    Args:
        takes: details of what the record's owner is about to take, by kind.
        gives_back: kinds of what was given back, where empty stands for all kinds; None for nothing.
    """

    takes: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    gives_back: tuple[str, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.takes) or self.gives_back is not None


NOTHING: Final = ResourceChange()


@dataclass(frozen=True, slots=True)
class HeldResource:
    """Something that was acquired and not released yet: lease, lock, view, apply, mount, slot, process, remote_task,
    panel."""

    id: int
    owner: str
    kind: str
    detail: dict[str, JsonValue]
    acquired_at: str


class ResourceLog:
    """The resources that delegations and assignments hold.

    Args:
        events: runs the transactions.
    """

    def __init__(self, events: EventLog) -> None:
        self._events = events

    async def acquire(self, owner: str, kind: str, detail: Mapping[str, JsonValue]) -> int:
        """Journal that ``owner`` is about to take something, and return the number to release it by."""
        return await self._events.transact(lambda connection, _: take(connection, owner, kind, detail))

    async def release(self, number: int) -> None:
        """Journal that a resource was given back; twice is no error."""
        await self._events.transact(
            lambda connection, _: (
                connection.execute(
                    "UPDATE resources SET released_at = ? WHERE id = ? AND released_at IS NULL", (rfc3339(), number)
                ).rowcount
            )
        )

    async def release_owned(self, owner: str, *kinds: str) -> int:
        """Journal that all resources of ``owner``, or those of some kinds, were given back; return how many."""
        return await self._events.transact(lambda connection, _: give_back(connection, owner, kinds))

    async def open_resources(self, owner: str | None = None) -> list[HeldResource]:
        """Return what is held, the oldest first; after a start, what the last process left behind."""

        def work(connection: sqlite3.Connection) -> list[HeldResource]:
            rows = connection.execute(
                "SELECT * FROM resources WHERE released_at IS NULL AND (?1 IS NULL OR owner = ?1) ORDER BY id", (owner,)
            )
            return [
                HeldResource(row["id"], row["owner"], row["kind"], load_object(row["detail"]), row["acquired_at"])
                for row in rows
            ]

        return await self._events.read(work)
