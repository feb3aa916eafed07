"""A SQLite database of ours: its version, the copy before a change, and the change in one transaction.

Rules: a database of a later version is refused before a byte beside or in it is written. The copy is whole and on the
disk before the first change. All steps and the new version number are one transaction, so a kill leaves the old
version or the new one.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from sublet.disk.durable import sync_directory
from sublet.disk.plain_file import read_plain
from sublet.migrations import refusals
from sublet.migrations.schema import Schema

KEPT_COPIES: Final = 2
"""Of each database and of the files, from as many versions; older ones go once a migration is through."""
_HEADER_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\0"
_VERSION_AT: Final = 60
_APPLICATION_AT: Final = 68
_BUSY_SECONDS: Final = 5.0


class Database:
    """One database file. Every method blocks on the disk; nobody else may write to the file meanwhile.

    Args:
        path: the file.
        schema: what it looks like in this version.
    """

    def __init__(self, path: Path, schema: Schema) -> None:
        self.path = path
        self.schema = schema

    def version(self) -> int | None:
        """Return the version of the file without writing anything; None where it is no database of this kind."""
        found = _facts_of_file(self.path)
        return None if found is None or found[1] not in (0, self.schema.application_id) else found[0]

    def check(self, written_by: str = "") -> int | None:
        """Return the version of the file, or None where it is for whoever opens it to say what is wrong with it.

        Raises:
            SubletError: ``STATE_VERSION`` where it can't be taken up.
        """
        version = self.version()
        if version is not None and version > self.schema.version:
            raise refusals.newer(self.schema.what, self.path, version, self.schema.version, written_by)
        return version

    def is_due(self) -> bool:
        """Tell whether the file has an older version that is brought to this one."""
        version = self.version()
        if version is None or not self.schema.oldest <= version < self.schema.version:
            return False
        try:
            with _opened(self.path) as connection:
                return not _is_empty(connection)
        except sqlite3.Error:
            return True  # the copy says why it can't be opened

    def copy(self) -> Path:
        """Copy the file beside itself, durably, and return the copy: ``NAME.vVERSION``.

        Raises:
            SubletError: ``UNAVAILABLE`` where that is not possible; nothing has changed then.
        """
        try:
            with _opened(self.path) as connection:
                return copy_before(connection, self.path, self.schema)
        except sqlite3.Error as error:
            raise refusals.not_copied(self.schema.what, self.path, _words(error), size_of(self.path)) from None

    def migrate(self) -> None:
        """Bring the file, which was copied, to this version.

        Raises:
            SubletError: ``UNAVAILABLE`` where that failed; it is as it was then.
        """
        try:
            with _opened(self.path) as connection:
                migrate(connection, self.path, self.schema)
        except sqlite3.Error as error:
            raise refusals.not_changed(self.schema.what, self.path, _words(error)) from None

    def copies(self) -> dict[int, Path]:
        """Return the copies of older versions beside the file, by version."""
        start = f"{self.path.name}.v"
        found = [one for one in self.path.parent.iterdir() if one.name.startswith(start)]
        return {int(one.name[len(start) :]): one for one in found if one.name[len(start) :].isdecimal()}


def prepare(connection: sqlite3.Connection, path: Path | None, schema: Schema) -> bool:
    """Make the tables of a new database, or bring those of an older version to this one; tell if it is new.

    Args:
        connection: to the database, in autocommit mode and in WAL mode.
        path: its file; None for one in memory.
        schema: the tables.

    Raises:
        SubletError: ``STATE_VERSION`` or ``UNAVAILABLE``, as ``Database``.
    """
    if _is_empty(connection):
        connection.execute("BEGIN IMMEDIATE")
        for statement in schema.create:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={schema.application_id}")
        connection.execute(f"PRAGMA user_version={schema.version}")
        connection.execute("COMMIT")
        return True
    version = _version(connection)
    if path is None or version == schema.version:
        return False
    if version > schema.version:
        raise refusals.newer(schema.what, path, version, schema.version)
    if version < schema.oldest:
        raise refusals.too_old(schema.what, path, version, schema.oldest)
    copy_before(connection, path, schema)
    migrate(connection, path, schema)
    return False


def copy_before(connection: sqlite3.Connection, path: Path, schema: Schema) -> Path:
    """Copy the database beside its file, as ``Database.copy``."""
    copy = path.with_name(f"{path.name}.v{_version(connection)}")
    draft = path.with_name(f"{path.name}.copy")
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise refusals.damaged(schema.what, path, str(found))
    size = sum(size_of(path.with_name(path.name + end)) for end in ("", "-wal"))
    try:
        _remove(draft)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as target:
            connection.backup(target)
            # Into the file alone, so that the copy is one file that can be put back.
            target.execute("PRAGMA journal_mode=DELETE")
        _sync(draft)
        draft.replace(copy)
        sync_directory(path.parent)
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):
            _remove(draft)
        raise refusals.not_copied(schema.what, path, _words(error), size) from None
    return copy


def migrate(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    """Run all steps that the database needs in one transaction, as ``Database.migrate``."""
    keys = connection.execute("PRAGMA foreign_keys").fetchone()[0]
    connection.execute("PRAGMA foreign_keys=OFF")  # a table may be made anew; what refers to it is checked at the end
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for step in schema.steps_from(_version(connection)):
                step.change(connection)
                connection.execute(f"PRAGMA user_version={step.to}")
            connection.execute(f"PRAGMA application_id={schema.application_id}")
            if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
                raise sqlite3.IntegrityError("a row refers to one that is not there")
            connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if isinstance(error, Exception):
                raise refusals.not_changed(schema.what, path, _words(error)) from error
            raise
    finally:
        connection.execute(f"PRAGMA foreign_keys={keys}")
    with suppress(OSError):
        for _, copy in sorted(Database(path, schema).copies().items())[:-KEPT_COPIES]:
            copy.unlink()


def _facts_of_file(path: Path) -> tuple[int, int] | None:
    """Return user version and application id of a file without writing; None where that is not a database."""
    try:
        if size_of(path.with_name(path.name + "-wal")):
            return _facts_of_log(path)
        head = read_plain(path, _HEADER_BYTES - 1, follow=False)
    except OSError:
        return None
    if len(head) < _HEADER_BYTES or not head.startswith(_MAGIC):
        return None
    version, application = (int.from_bytes(head[at : at + 4], "big") for at in (_VERSION_AT, _APPLICATION_AT))
    return version, application


def _facts_of_log(path: Path) -> tuple[int, int] | None:
    """Return the facts where a killed process has left a log, in which the newest ones may stand."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as log:
            return _version(log), log.execute("PRAGMA application_id").fetchone()[0]
    except sqlite3.Error:
        return None


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=_BUSY_SECONDS)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        yield connection


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is None


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def size_of(path: Path) -> int:
    """Return the bytes of a file, none where it is missing."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove(draft: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        draft.with_name(draft.name + end).unlink(missing_ok=True)


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error) or type(error).__name__
