"""``sublet doctor --repair``: makes damaged databases anew from what can be read, where no daemon runs.

A daemon mends what it can by itself, which are rooms: the signed log and other members tell what is right. What its own
database says nobody else knows, so that is mended only when a person asks for it, and what could not be read is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sublet.daemon.api.daemon import Check
from sublet.daemon.config.config_file import read_config
from sublet.daemon.config.paths import Home
from sublet.daemon.process.lock import InstanceLock
from sublet.daemon.process.own_home import is_copy, make_own
from sublet.daemon.rooms.mending import mend_rooms
from sublet.daemon.storage.state import ROOM_STORE, STORE, databases
from sublet.disk.set_aside import SetAside
from sublet.migrations import damage
from sublet.migrations.database import Database
from sublet.migrations.salvage import finish, salvage
from sublet.migrations.schema import Schema
from sublet.protocol.errors import LocalCode, SubletError

REPAIR: Final = "sublet down, then sublet doctor --repair"
_NEEDS: Final = {STORE: "everything", ROOM_STORE: "rooms"}
_TOLD: Final[Mapping[str, str]] = {
    "peers": "paired daemons: see `sublet peers`, and pair again with those that are missing",
    "tokens": "tokens: make those that are missing with `sublet token create`",
    "nonces": "what was seen once: a message of the last minutes might be taken a second time",
}
"""What it means that rows of a table could not be read."""


def look(state_dir: Path, stores: Mapping[str, Schema], *, running: bool) -> list[Check]:
    """Return how the databases of a state directory are. Blocks, writes nothing.

    Args:
        state_dir: private directory of the daemon.
        stores: databases of faces there, by file name.
        running: whether the daemon runs, and uses them.
    """
    return [
        Check(
            name=database.path.name,
            ok=not (why := _damage(database, running=running)),
            detail=f"damaged: {why}" if why else "sound",
            fix=f"{REPAIR}. Rooms are mended by the daemon itself." if database.path.name == ROOM_STORE else REPAIR,
            required_for=_NEEDS.get(database.path.name, "answering other agents"),
        )
        for database in databases(state_dir, stores)
        if database.path.exists()
    ]


def repair(home: Home, stores: Mapping[str, Schema]) -> list[Check]:
    """Make damaged databases anew, and return what became of each. Blocks.

    Args:
        home: whose daemon does not run.
        stores: databases of faces in its state directory, by file name.

    Raises:
        SubletError: ``ALREADY_RUNNING``; ``UNAVAILABLE`` where there is no room for it, which has changed nothing.
    """
    state_dir = Path(home.state_dir)
    if not state_dir.is_dir():
        return []
    home.make()
    try:
        with _locked(home):
            aside = SetAside(state_dir)
            return [
                _rooms(home, database, aside) if database.path.name == ROOM_STORE else _mended(database)
                for database in databases(state_dir, stores)
                if database.path.exists() or database.path.with_name(f"{database.path.name}.mending").exists()
            ]
    finally:
        home.clean_up()


def own_home(home: Home) -> Check:
    """Make a copied home a daemon of its own, which begins anew with what was configured. Blocks.

    Raises:
        SubletError: ``ALREADY_RUNNING``; ``CONFLICT`` where it is no copy; ``UNAVAILABLE`` where something can't be
            moved: calling it again goes on.
    """
    home.make()
    try:
        with _locked(home):
            if not is_copy(Path(home.state_dir)):
                raise SubletError(
                    LocalCode.CONFLICT,
                    "this home is where it has always been, so it is no copy of another one",
                    f"To begin anew all the same, move {home.state_dir} aside.",
                )
            kept = make_own(Path(home.state_dir))
    except OSError as error:
        raise SubletError(
            LocalCode.UNAVAILABLE, f"{home.state_dir} can't be cleared: {error.strerror}", "Mend that, and call again."
        ) from None
    finally:
        home.clean_up()
    said = f"begins anew at the next start, with a key of its own and paired with nobody; what it held is in {kept}"
    return Check(name="home", ok=True, detail=said, required_for="everything")


def _locked(home: Home) -> InstanceLock:
    try:
        return InstanceLock.acquire(home)
    except SubletError as error:
        if error.code is LocalCode.ALREADY_RUNNING:
            raise SubletError(error.code, error.message, "Stop it first: sublet down") from None
        raise


def _damage(database: Database, *, running: bool) -> str:
    try:
        return _wrong(database, alone=not running)
    except Exception as error:  # of which there are many kinds, and it is told in any case
        return f"it can't be read: {damage.in_words(error)}"


def _wrong(database: Database, *, alone: bool) -> str:
    """Return what is wrong with a database, empty where it is sound and of this program."""
    if found := damage.first(database.path, alone=alone):
        return found
    other = database.version() is None and database.path.stat().st_size > 0
    return "it is not a database of this program" if other else ""


def _mended(database: Database) -> Check:
    path, needed = database.path, _NEEDS.get(database.path.name, "answering other agents")
    finish(path)
    why = _wrong(database, alone=True)
    if not why:
        return Check(name=path.name, ok=True, detail="sound", required_for=needed)
    version = database.version()
    if version not in (None, 0, database.schema.version):
        raise SubletError(
            LocalCode.STATE_VERSION,
            f"{database.schema.what} in {path} are damaged ({why}) and of version {version}, not of this program's",
            "Repair them with the version of Sublet that wrote them, or put a copy in their place (docs/upgrading.md).",
        )
    made = salvage(path, database.schema, why)
    told = [f"rows of {table} could not be read" for table in made.torn if table not in _TOLD]
    told += [f"not all could be read of {_TOLD[table]}" for table in made.torn if table in _TOLD]
    rows = sum(made.rows.values())
    said = f"was damaged ({why}) and made anew with {rows} rows; the damaged file is {made.kept_as}"
    return Check(name=path.name, ok=True, detail="; ".join([said, *told]), required_for=needed)


def _rooms(home: Home, database: Database, aside: SetAside) -> Check:
    version = database.version()
    if version is not None and version != database.schema.version:
        return Check(
            name=database.path.name,
            ok=True,
            detail=f"of version {version}: it is looked at once the daemon has brought it to this version",
            required_for="rooms",
        )
    settings = read_config(Path(home.config_dir) / "config.json").messaging
    done, remarks = mend_rooms(Path(home.state_dir), settings, aside.keep)
    detail = "; ".join(remarks) if done else "sound"
    return Check(name=database.path.name, ok=True, detail=detail, required_for="rooms")
