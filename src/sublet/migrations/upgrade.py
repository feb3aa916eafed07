"""Takes a whole state directory up, when a daemon starts: everything is looked at before anything is written."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Final

import structlog

from sublet.migrations import refusals
from sublet.migrations.database import Database
from sublet.migrations.layout import LayoutFiles

SPARE_BYTES: Final = 64 << 10
"""Left free besides what a change may write: SQLite's index of its log, and the file with the version."""

log = structlog.get_logger(__name__)


def upgrade(databases: Sequence[Database], files: LayoutFiles) -> None:
    """Bring databases and files of older versions to this one. Blocks; the caller keeps every other daemon out.

    First all versions are looked at, then everything that is changed later is copied, then it is changed. So a store of
    a later version, or a disk without room for the copies, leaves a directory that the older version starts from.

    Raises:
        SubletError: ``STATE_VERSION`` or ``UNAVAILABLE``, in words that say what to do.
    """
    written = files.check()
    for database in databases:
        database.check(written.by if written is not None else "")
    due = [database for database in databases if database.is_due()]
    for database in due:
        before, copy = database.version(), database.copy()
        log.warning("a store of an older version was copied", store=database.path.name, version=before, copy=copy.name)
    if written is not None:
        files.copy(written)
    _require_room(due)
    for database in due:
        before = database.version()
        database.migrate()
        log.warning(
            "a store was brought to this version",
            store=database.path.name,
            before=before,
            now=database.schema.version,
        )
    steps = files.due(written)
    files.migrate(written)
    for step in steps:
        log.warning("the files of the state directory were brought to this version", layout=step.to, change=step.what)


def _require_room(due: Sequence[Database]) -> None:
    """Refuse to begin where one database could be changed and the next one might not fit any more.

    A change may write every page of a database once into its log, and once more from there into the file.

    Raises:
        SubletError: ``UNAVAILABLE``.
    """
    if not due:
        return
    place = due[0].path.parent
    needed = SPARE_BYTES + 2 * sum(database.path.stat().st_size for database in due)
    if shutil.disk_usage(place).free < needed:
        raise refusals.no_room(place, needed)
