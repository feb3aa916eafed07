"""The directories below which MCP callers may lend, as a person has allowed them (DESIGN 9)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import anyio

from sublet.daemon.storage.journal import Journal
from sublet.daemon.times import rfc3339
from sublet.protocol.errors import LocalCode, SubletError

MAX_ROOTS = 256


class LendRoots:
    """A set of absolute real paths; which paths may be in it is for policy to say."""

    def __init__(self, journal: Journal, paths: Sequence[str]) -> None:
        self._journal = journal
        self._paths = set(paths)

    @classmethod
    async def load(cls, journal: Journal) -> LendRoots:
        """Return the roots that the store knows."""

        def work(connection: sqlite3.Connection) -> list[str]:
            return [row["path"] for row in connection.execute("SELECT path FROM lend_roots")]

        return cls(journal, await journal.read(work))

    def paths(self) -> list[str]:
        """Return all roots, sorted."""
        return sorted(self._paths)

    async def add(self, path: str) -> list[str]:
        """Add ``path`` and return all roots; adding it again is no error.

        Raises:
            SubletError: ``UNAVAILABLE`` where there are ``MAX_ROOTS``.
        """
        if len(self._paths | {path}) > MAX_ROOTS:
            raise SubletError(LocalCode.UNAVAILABLE, f"{MAX_ROOTS} directories are allowed already", "Remove some.")
        with anyio.CancelScope(shield=True):
            await self._journal.transact(
                lambda connection, _: (
                    connection.execute(
                        "INSERT OR IGNORE INTO lend_roots (path, added_at) VALUES (?, ?)", (path, rfc3339())
                    ).rowcount
                )
            )
            self._paths.add(path)
        return self.paths()

    async def remove(self, path: str) -> list[str]:
        """Take ``path`` off and return what is left.

        Raises:
            SubletError: ``NOT_FOUND`` where it is not on the list.
        """
        if path not in self._paths:
            raise SubletError(LocalCode.NOT_FOUND, "that directory is not on the list", "See `sublet allow --list`.")
        self._paths.discard(path)
        with anyio.CancelScope(shield=True):
            try:
                await self._journal.transact(
                    lambda connection, _: connection.execute("DELETE FROM lend_roots WHERE path = ?", (path,)).rowcount
                )
            except BaseException:
                self._paths.add(path)
                raise
        return self.paths()
