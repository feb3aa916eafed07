"""What a person is told where a store can't be taken up or brought to this version."""

from __future__ import annotations

from pathlib import Path

from sublet.protocol.errors import LocalCode, SubletError


def newer(what: str, path: Path, version: int, known: int, written_by: str = "") -> SubletError:
    """Return the error for a store that a later version of Sublet has written; nothing of it was touched.

    Args:
        what: what the store holds.
        path: where it is.
        version: its version.
        known: the newest that this program knows.
        written_by: the version of Sublet that wrote it; empty where that is not known.
    """
    by = f"Sublet {written_by}" if written_by else "a later version of Sublet"
    return SubletError(
        LocalCode.STATE_VERSION,
        f"{what} in {path} has version {version}, written by {by}; this program knows up to version {known}",
        f"Start {by} again. To go back to this program, put the copy that was made before the upgrade in its place "
        "(see docs/upgrading.md), or choose another SUBLET_HOME.",
    )


def too_old(what: str, path: Path, version: int, oldest: int) -> SubletError:
    """Return the error for a store of before the first version that can be taken up."""
    return SubletError(
        LocalCode.STATE_VERSION,
        f"{what} in {path} has version {version}; this program takes up version {oldest} and later",
        "Start an earlier version of Sublet that takes it up first, or choose another SUBLET_HOME to begin anew.",
    )


def not_copied(what: str, path: Path, why: str, size: int) -> SubletError:
    """Return the error for a copy that could not be made; ``size`` is what it would take, in bytes."""
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"{what} in {path} was written by an older version and is copied before it is changed, "
        f"which failed: {why} (about {max(1, size >> 20)} MiB are needed)",
        f"Make room in {path.parent} and start again. Nothing was changed: the older version still starts.",
    )


def no_room(path: Path, size: int) -> SubletError:
    """Return the error for a disk that has room for the copies and none for the change; ``size`` is in bytes."""
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"what an older version wrote in {path} is brought to this version, "
        f"for which about {max(1, size >> 20)} MiB more are needed than its disk has",
        f"Make room in {path} and start again. Nothing was changed: the older version still starts.",
    )


def not_changed(what: str, path: Path, why: str) -> SubletError:
    """Return the error for a migration that failed and was taken back."""
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"{what} in {path} could not be brought to this version: {why}",
        "It is as it was before. Mend that and start again; docs/upgrading.md tells how to go back.",
    )


def damaged(what: str, path: Path, why: str) -> SubletError:
    """Return the error for an older store that is damaged, so that nothing may be built on it."""
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"{what} in {path} is of an older version and damaged: {why}",
        f"Repair it with the version of Sublet that wrote it (sublet doctor --repair), try "
        f"`sqlite3 {path} .recover | sqlite3 new.db`, or move it and its -wal file aside and start again.",
    )
