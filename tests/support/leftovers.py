"""What a daemon leaves: on the disk, in its journal, among mounts."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from typing import Any

from support.daemons import Daemon


def left_behind(daemon: Daemon) -> list[str]:
    """Return what a stopped daemon has left that should be gone: sockets, locks, mounts, scratch, resources."""
    found = [str(path) for path in (daemon.home / "run").iterdir()]
    found += daemon.mounts
    for name in ("mounts", "scratch", "work", "clones"):
        with suppress(FileNotFoundError):
            found += [str(path) for path in (daemon.home / "state" / name).iterdir()]
    return found + held(daemon)


def held(daemon: Daemon) -> list[str]:
    """Return the resources that the journal calls acquired and not released."""
    return [
        f"{row[0]}: {row[1]}" for row in rows(daemon, "SELECT kind, detail FROM resources WHERE released_at IS NULL")
    ]


def rows(daemon: Daemon, query: str) -> list[Any]:
    """Ask the daemon's database, whether it runs or not."""
    with closing(sqlite3.connect(f"file:{daemon.home}/state/sublet.db?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()
