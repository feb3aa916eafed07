"""What a mount can't carry although it looks like a directory, told where a delegation meets it (cases D06, D07).

SFTP version 3 has times in whole seconds and no locks. So make and ninja may take a target for newer than a source that
was written in the same second, and programs that lock a file on both sides do not see each other's locks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sublet.protocol.bounds import TransportName

TIMES: Final = (
    "file times in a mount are whole seconds, so a second build within the same second may miss a change; delegate "
    "with --transport archive, or build in a directory outside the mount"
)
LOCKS: Final = (
    "file locks do not pass through a mount, so a program here that had the database open meanwhile may have lost "
    "rows; check it, and lend databases with --transport archive"
)
_DATABASES: Final = (".sqlite", ".sqlite3", ".db", ".db3")
_JOURNALS: Final = ("", "-wal", "-shm", "-journal")
_DATABASE_ENDS: Final = tuple(end + journal for end in _DATABASES for journal in _JOURNALS)
MAX_NAMED: Final = 3
"""Names that one caution gives."""


def cautions(transport: TransportName | None, builds: Iterable[str], changed: Iterable[str]) -> list[str]:
    """Return what to know about the work in a mount, a sentence each.

    Args:
        transport: how the directories travel; without a mount there is nothing to know.
        builds: build files in the lent directories.
        changed: names that the executor has changed or added.
    """
    if transport != "sshfs":
        return []
    told: list[str] = []
    if named := ", ".join(sorted(builds)[:MAX_NAMED]):
        told.append(f"{named}: {TIMES}")
    databases = sorted(name for name in changed if name.endswith(_DATABASE_ENDS))
    if databases:
        more = f" and {len(databases) - MAX_NAMED} more" if len(databases) > MAX_NAMED else ""
        told.append(f"{', '.join(databases[:MAX_NAMED])}{more}: {LOCKS}")
    return told


def without_names(told: Iterable[str]) -> list[str]:
    """Return the words of cautions without the file names, which the executor may have chosen.

    Args:
        told: what ``cautions`` returned; sentences of another version are left out.
    """
    return [words for words in (TIMES, LOCKS) if any(caution.endswith(f": {words}") for caution in told)]
