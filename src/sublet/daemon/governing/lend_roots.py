"""The directories below which MCP callers may lend, as a person has allowed them (DESIGN 9.3)."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Sequence
from pathlib import Path

import anyio

from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.torn_rows import RowsOf
from sublet.daemon.times import rfc3339
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.text import clean_name

MAX_ROOTS = 256


class LendRoots:
    """A set of absolute real paths; which paths may be in it is for policy to say."""

    def __init__(self, journal: Journal, paths: Sequence[str]) -> None:
        self._journal = journal
        self._paths = set(paths)

    @classmethod
    async def load(cls, journal: Journal) -> LendRoots:
        """Return the roots that the store knows."""
        return cls(journal, await journal.rows.sound(RowsOf("lend_roots", "path"), _path))

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
            await self._journal.events.transact(
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
                await self._journal.events.transact(
                    lambda connection, _: connection.execute("DELETE FROM lend_roots WHERE path = ?", (path,)).rowcount
                )
            except BaseException:
                self._paths.add(path)
                raise
        return self.paths()


def _path(row: sqlite3.Row) -> str:
    path = str(row["path"])
    if not os.path.isabs(path) or "\0" in path or os.path.normpath(path) != path:
        raise ValueError("it is no real path")
    return path


def real_directory(path: str) -> str:
    """Return the real path of a directory that is there, and never another one instead (case C01).

    Raises:
        SubletError: ``WORKSPACE_INVALID`` or ``WORKSPACE_NOT_FOUND``.
    """
    if not os.path.isabs(path) or "\0" in path:
        raise SubletError(
            ErrorCode.WORKSPACE_INVALID,
            "the workspace must be an absolute path on the daemon's machine",
            "Give the full path; the daemon never guesses what a relative one is relative to.",
        )
    real, shown = Path(os.path.realpath(path)), clean_name(path)
    try:
        is_directory = stat.S_ISDIR(real.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise SubletError(
            ErrorCode.WORKSPACE_NOT_FOUND,
            f"{shown} does not exist on this machine",
            "Lend from the machine that has the directory: its own daemon must do it.",
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SubletError(
            ErrorCode.WORKSPACE_INVALID, f"{shown} can't be lent: {reason}", "Lend a directory that you can enter."
        ) from None
    if not is_directory:
        raise SubletError(ErrorCode.WORKSPACE_INVALID, f"{shown} is no directory", "Lend the directory that holds it.")
    return str(real)
