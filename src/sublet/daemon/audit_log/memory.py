"""What the store remembers of the audit log, so that a log that was cut off is not taken for a whole one."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from sublet.daemon.audit_log.chain import Head
from sublet.daemon.audit_log.verify import Remembered
from sublet.daemon.storage.store import Store


class LogMemory:
    """One row of the store. ``known`` is what it holds, as far as this process has read or written it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.known = Remembered()

    async def load(self) -> Remembered:
        """Return what the store remembers."""
        self.known = await self._store.read(load_remembered)
        return self.known

    async def begin(self) -> None:
        """Remember that entries are added from now on."""
        await self._save(replace(self.known, closed=False, at_all=True))

    async def remember_head(self, head: Head, *, closed: bool = False) -> None:
        """Remember the last entry; ``closed`` says that no other follows before the next start."""
        await self._save(replace(self.known, head=head, closed=closed))

    async def remember_anchor(self, anchor: Head) -> None:
        """Remember the last entry of those that are removed."""
        await self._save(replace(self.known, anchor=anchor))

    async def _save(self, now: Remembered) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO audit_log (id, seq, hash, anchor_seq, anchor_hash, closed) VALUES (1, ?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, closed = excluded.closed, "
                "anchor_seq = excluded.anchor_seq, anchor_hash = excluded.anchor_hash",
                (now.head.seq, now.head.hash, now.anchor.seq, now.anchor.hash, now.closed),
            )

        await self._store.write(work)
        self.known = now


def load_remembered(connection: sqlite3.Connection) -> Remembered:
    """Return what the store behind ``connection`` remembers."""
    row = connection.execute("SELECT seq, hash, anchor_seq, anchor_hash, closed FROM audit_log WHERE id = 1").fetchone()
    if row is None:
        return Remembered(at_all=False)
    anchor = Head(row["anchor_seq"], row["anchor_hash"])
    return Remembered(Head(row["seq"], row["hash"]), anchor, bool(row["closed"]))
