"""The state directory as a whole: every store in it with its version, taken up when the daemon starts.

What lies there, and whose version counts:

- ``sublet.db``, ``messaging.db`` and ``a2a.sqlite3`` each have their own, in the file;
- everything else goes by the version of the layout in ``state-version``: keys, the audit log, results that are kept
  apart, snapshots, sessions, conversations and blobs.

The audit log is a chain of hashes, so no step changes a line of it: a new form begins with a new entry.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.daemon.storage.opening import lock_database
from sublet.daemon.storage.schema import SCHEMA
from sublet.messaging.backends.schema import SCHEMA as ROOMS
from sublet.migrations.database import Database
from sublet.migrations.layout import Layout, LayoutFiles, LayoutStep
from sublet.migrations.salvage import finish
from sublet.migrations.schema import Schema
from sublet.migrations.upgrade import upgrade
from sublet.protocol.errors import LocalCode, SubletError

STORE: Final = "sublet.db"
ROOM_STORE: Final = "messaging.db"
_OLD_BUS: Final = ("keys/bus.key", "keys/bus_authorities.pem")


def _drop_old_bus(state_dir: Path) -> None:
    """Remove the key and the authorities of a bus that this version has no use for."""
    for name in _OLD_BUS:
        (state_dir / name).unlink(missing_ok=True)


LAYOUT: Final = Layout(
    version=2,
    steps=(LayoutStep(2, "the old certificates of the bus are removed", _OLD_BUS, _drop_old_bus),),
    unnamed=1,
    present=STORE,
)


@dataclass(frozen=True, slots=True)
class StateVersions:
    """What ``doctor`` says of a state directory.

    Args:
        detail: the version of everything in it, and which copies of older versions there are.
        problem: why this program can't take it up; None where it can.
    """

    detail: str
    problem: SubletError | None = None


def take_up(state_dir: Path, program: str, faces: Mapping[str, Schema]) -> None:
    """Bring what older versions have left in a state directory to this version, before anything of it is used.

    Blocks. The caller holds the instance lock.

    Args:
        state_dir: private directory of the daemon.
        program: version of this program.
        faces: the databases that faces keep there, by file name.

    Raises:
        SubletError: ``STATE_VERSION`` where a later version was here, ``UNAVAILABLE`` where a copy or a change failed,
            ``ALREADY_RUNNING`` where another daemon has the store open.
    """
    files = LayoutFiles(state_dir, LAYOUT, program)
    stores = databases(state_dir, faces)
    _finish_mending(stores)
    if not (state_dir / STORE).exists():
        upgrade(stores, files)
        return
    # Looked at before the lock, since even its file is something that is written.
    written = files.check()
    for store in stores:
        store.check(written.by if written is not None else "")
    lock = lock_database(state_dir / STORE)
    try:
        upgrade(stores, files)
    finally:
        os.close(lock)


def _finish_mending(stores: Sequence[Database]) -> None:
    """Go on with a repair that a kill has interrupted.

    Raises:
        SubletError: ``UNAVAILABLE``.
    """
    for store in stores:
        try:
            finish(store.path)
        except OSError as error:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"the repair of {store.path} can't be finished: {error.strerror}",
                "See that its disk has space and is healthy, and start again.",
            ) from None


def versions(state_dir: Path, program: str, faces: Mapping[str, Schema]) -> StateVersions:
    """Return what a state directory holds, without writing anything. Blocks."""
    files = LayoutFiles(state_dir, LAYOUT, program)
    stores = databases(state_dir, faces)
    written = files.read()
    if written is None:
        return StateVersions("none yet")
    told = [f"layout {written.layout}" + (f" of Sublet {written.by}" if written.by else "")]
    copies: list[Path] = files.copies()
    problem: SubletError | None = None
    for store in stores:
        version = store.version()
        if version is not None:
            told.append(f"{store.path.name} {version}")
        copies += [path for _, path in sorted(store.copies().items())]
    try:
        files.check()
        for store in stores:
            store.check(written.by)
    except SubletError as error:
        problem = error
    kept = f"; copies of older versions: {', '.join(path.name for path in copies)}" if copies else ""
    return StateVersions(", ".join(told) + kept, problem)


def databases(state_dir: Path, faces: Mapping[str, Schema]) -> list[Database]:
    """Return all databases of a state directory; see ``take_up``."""
    found = {STORE: SCHEMA, ROOM_STORE: ROOMS, **faces}
    return [Database(state_dir / name, schema) for name, schema in found.items()]
