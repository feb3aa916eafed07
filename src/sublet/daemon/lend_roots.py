"""The directories below which a person has allowed MCP callers to lend (``sublet allow``, DESIGN 9)."""

from __future__ import annotations

import sqlite3

from sublet.daemon.store import Store
from sublet.daemon.times import rfc3339
from sublet.protocol.errors import LocalCode, SubletError

MAX_ROOTS = 200


class LendRoots:
    """A durable set of real paths, read from memory."""

    def __init__(self, store: Store, paths: list[str]) -> None:
        self._store = store
        self._paths = paths

    @classmethod
    async def load(cls, store: Store) -> LendRoots:
        """Read the set from the store."""

        def work(connection: sqlite3.Connection) -> list[str]:
            return [row["path"] for row in connection.execute("SELECT path FROM lend_roots ORDER BY path")]

        return cls(store, await store.read(work))

    def paths(self) -> list[str]:
        """Return the directories, sorted."""
        return list(self._paths)

    async def add(self, path: str) -> list[str]:
        """Allow ``path``, a real path; twice is no error.

        Raises:
            SubletError: ``UNAVAILABLE`` beyond ``MAX_ROOTS``.
        """
        if len(self._paths) >= MAX_ROOTS and path not in self._paths:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"{MAX_ROOTS} directories are allowed already",
                "Remove one: sublet allow --remove",
            )

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR IGNORE INTO lend_roots (path, added_at) VALUES (?, ?)", (path, rfc3339()))

        await self._store.write(work)
        self._paths = sorted({*self._paths, path})
        return self.paths()

    async def remove(self, path: str) -> list[str]:
        """Take ``path`` off.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        if path not in self._paths:
            raise SubletError(LocalCode.NOT_FOUND, f"{path} is not on the list", "See: sublet allow --list")

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM lend_roots WHERE path = ?", (path,))

        await self._store.write(work)
        self._paths.remove(path)
        return self.paths()
