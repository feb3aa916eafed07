"""Knows whether a daemon's home is where it was when it ran last, or a copy of one that is still there.

Two daemons with one key would both be believed: peers would take each for the other, and what one acknowledges the
other has not. So a copy of a home that is seen from here is refused at once. One that comes from elsewhere gets a token
of its own (``protocol/home_token.py``), by which its peers notice where both run.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import structlog

from sublet.disk.durable import sync_directory, write_durably
from sublet.disk.plain_file import read_plain
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.home_token import OWN_HOME, HomeToken, new_token, parse_home

FILE: Final = "home.json"
MAX_FILE_BYTES: Final = 4_096
COPIED: Final = "copied-home"
"""Below the state directory: what a copied home held before it was made a daemon of its own."""
_MACHINE_FILES: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_MACHINE_BYTES: Final = 256
_LOCK: Final = "daemon.lock"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a state directory is."""

    machine: str
    path: str
    inode: int


def own_token(state_dir: Path) -> HomeToken:
    """Return the token of the home whose state is here, made anew where it has come from elsewhere. Blocks.

    The caller holds the instance lock.

    Raises:
        SubletError: ``HOME_COPIED``: the home that this is a copy of is still where it was.
    """
    here, file = _place(state_dir), state_dir / FILE
    token, before = _read(file)
    if before is not None and token is not None:
        if here == before:
            return token
        if (here.machine, here.inode) != (before.machine, before.inode):  # else its directory was given another name
            if here.machine == before.machine and _is_there(before, token):
                raise copied(before.path)
            token = token.moved()
            log.warning("this home was in another place before", before=before.path, machine=before.machine)
    token = token or HomeToken(new_token())
    try:
        write_durably(file, json.dumps({"home": token.said, "place": asdict(here)}).encode())
    except OSError as error:
        log.warning("where this home is could not be written down", reason=error.strerror)
    return token


def problem(state_dir: Path) -> SubletError | None:
    """Return what ``own_token`` would raise, without writing anything. Blocks."""
    token, before = _read(state_dir / FILE)
    if token is None or before is None:
        return None
    here = _place(state_dir)
    if (here.machine, here.inode) == (before.machine, before.inode) or here.machine != before.machine:
        return None
    return copied(before.path) if _is_there(before, token) else None


def is_copy(state_dir: Path) -> bool:
    """Tell whether this home has been in another place, so that it may be a copy. Blocks."""
    token, before = _read(state_dir / FILE)
    if token is None or before is None:
        return False
    here = _place(state_dir)
    return bool(token.elders) or (here.machine, here.inode) != (before.machine, before.inode)


def make_own(state_dir: Path) -> Path:
    """Let the home begin anew, with a key of its own; return where what it held is now. Blocks.

    The caller holds the instance lock, so that no daemon runs here.

    Args:
        state_dir: the state.

    Raises:
        OSError: something can't be moved; calling it again goes on.
    """
    number = next(one for one in range(1, 1_000_000) if not (state_dir / _numbered(one)).exists())
    kept = state_dir / _numbered(number)
    kept.mkdir(mode=0o700)
    stays = {_LOCK, *(_numbered(one) for one in range(1, number + 1))}
    # The keys go late: what is left by a kill is the copy still, and not a new daemon with the other's rooms. What says
    # that it is one goes last.
    names = sorted(os.listdir(state_dir), key=lambda name: (name == FILE, name == "keys", name))
    for name in names:
        if name not in stays:
            (state_dir / name).rename(kept / name)
    sync_directory(state_dir)
    return kept


def copied(original: str) -> SubletError:
    """Return the error for a home that is a copy of one that is still there."""
    return SubletError(
        LocalCode.HOME_COPIED,
        f"this home is a copy of {original}, whose daemon has the same key: both would be taken for one",
        f"Use the other one, or make this a daemon of its own, which pairs anew: {OWN_HOME}",
    )


def _numbered(number: int) -> str:
    return f"{COPIED}-{number}"


def _place(state_dir: Path) -> _Place:
    return _Place(_machine(), os.path.realpath(state_dir), os.stat(state_dir).st_ino)


def _machine() -> str:
    for name in _MACHINE_FILES:
        try:
            return read_plain(Path(name), _MACHINE_BYTES, follow=True).decode("ascii", "replace").strip()
        except OSError:
            continue
    return ""


def _read(file: Path) -> tuple[HomeToken | None, _Place | None]:
    try:
        found = json.loads(read_plain(file, MAX_FILE_BYTES, follow=False))
        place = found["place"]
        return parse_home(found["home"]), _Place(str(place["machine"]), str(place["path"]), int(place["inode"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None, None


def _is_there(place: _Place, token: HomeToken) -> bool:
    """Tell whether the home that was in a place is there still."""
    path = Path(place.path)
    try:
        if os.stat(path).st_ino != place.inode:
            return False
    except OSError:
        return False
    there, _ = _read(path / FILE)
    return there is not None and token.token in (there.token, *there.elders)
