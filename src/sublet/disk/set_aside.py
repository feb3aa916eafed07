"""What of the state directory can't be used or removed: moved out of the way, within bounds, and told.

Nothing that lies in scratch, staging or a store keeps the daemon from starting. What it can't make sense of, or can't
remove, goes to ``set-aside/`` in the state directory, where a person finds it, and ``status`` says so. It is
kept for a while only: the oldest go beyond ``MAX_KEPT`` things or ``MAX_BYTES``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.disk.disk_usage import disk_usage
from sublet.disk.private_dir import PrivateDir
from sublet.disk.removal import is_removed, remove_tree

DIRECTORY: Final = "set-aside"
GOING: Final = "going"
"""Where, in the state directory, lies what is removed next."""
IN_PLACE_SECONDS: Final = 5.0
"""How long it is tried to remove at once what can't be moved."""
MAX_KEPT: Final = 32
MAX_BYTES: Final = 256 << 20
MAX_TOLD: Final = 32
"""Things of this run that are told one by one."""
MAX_WHY: Final = 300


@dataclass(frozen=True, slots=True)
class SetAsideThing:
    """One thing that was set aside.

    Args:
        what: where it was, below the state directory; escaped, since somebody else may have named it.
        why: why it can't be used or removed.
        kept_as: where it is now; empty where it stays where it was.
    """

    what: str
    why: str
    kept_as: str


class SetAside:
    """Sets things of one state directory aside. Every method blocks; safe to call from threads; raises nothing.

    Args:
        state_dir: private directory of the daemon.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._home = state_dir / DIRECTORY
        self._going = state_dir / GOING
        self._told: deque[SetAsideThing] = deque(maxlen=MAX_TOLD)
        self._count = 0
        self._lock = threading.Lock()

    @property
    def told(self) -> Sequence[SetAsideThing]:
        """What was set aside since the start, the newest last, at most ``MAX_TOLD``."""
        with self._lock:
            return tuple(self._told)

    @property
    def count(self) -> int:
        """How many things were set aside since the start."""
        return self._count

    def take(self, path: Path, why: str) -> SetAsideThing:
        """Move what lies at ``path`` out of the way; where that can't be done, it stays, and that is told."""
        name = _new_name()
        kept_as = str(self._home / name)
        try:
            self._make(self._home)
            _moved(path, kept_as)
        except OSError as error:
            why, kept_as = f"{why}; it can't be moved either: {error.strerror}", ""
        return self._note(path, why, kept_as)

    def keep(self, what: str, data: bytes, why: str) -> SetAsideThing:
        """Keep the content of something that was no file, such as a row of a database."""
        name = _new_name()
        kept_as = str(self._home / name)
        try:
            self._make(self._home)
            with PrivateDir.open(self._home) as home:
                home.write(name, data)
        except OSError as error:
            why, kept_as = f"{why}; it can't be kept either: {error.strerror}", ""
        return self._note(self._state_dir / what, why, kept_as)

    def names(self, directory: Path, is_ours: Callable[[str], object] = lambda _: True) -> list[str]:
        """Return the names in a directory of the daemon's own, sorted; none where it is missing.

        What stands in its place and is no directory that can be read is set aside, and so is a name in it that the
        daemon does not give.

        Args:
            directory: the directory.
            is_ours: tells whether the daemon would give that name.
        """
        try:
            if stat.S_ISDIR(os.stat(directory, follow_symlinks=False).st_mode):
                found = sorted(os.listdir(directory))
                for name in found:
                    if not is_ours(name):
                        self.take(directory / name, "it is not of the daemon's making")
                return [name for name in found if is_ours(name)]
            why = "it is no directory"
        except FileNotFoundError:
            return []
        except OSError as error:
            why = f"it can't be read: {error.strerror}"
        self.take(directory, why)
        return []

    def remove_later(self, path: Path) -> None:
        """Take what lies at ``path`` out of the way at once, for ``sweep`` to remove it. None is no error.

        A start waits for this and not for the removal, since whoever has filled it decides how long that takes.
        """
        try:
            self._make(self._going)
            _moved(path, str(self._going / _new_name()))
        except FileNotFoundError:
            return
        except OSError:
            if not is_removed(path, seconds=IN_PLACE_SECONDS):
                self.take(path, "it can't be removed")

    def sweep(self) -> None:
        """Remove what is to go, and the oldest of what was set aside. May take long: nobody should wait for it."""
        for name in self.names(self._going):
            if not is_removed(self._going / name):
                self.take(self._going / name, "it can't be removed")
        self._prune()

    def _prune(self) -> None:
        left = MAX_BYTES
        with contextlib.suppress(OSError):
            for number, name in enumerate(sorted(os.listdir(self._home), reverse=True)):
                path = self._home / name
                left -= disk_usage(path, enough=max(left, 0))
                if number >= MAX_KEPT or left < 0:
                    is_removed(path)

    def _make(self, directory: Path) -> None:
        self._state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(directory, follow_symlinks=False).st_mode):
                remove_tree(directory)
                directory.mkdir(mode=0o700)

    def _note(self, path: Path, why: str, kept_as: str) -> SetAsideThing:
        with contextlib.suppress(ValueError):
            path = path.relative_to(self._state_dir)
        thing = SetAsideThing(_shown(path), why[:MAX_WHY], kept_as)
        with self._lock:
            self._told.append(thing)
            self._count += 1
        return thing


def _moved(path: Path, target: str) -> None:
    try:
        os.rename(path, target)
    except PermissionError:
        # A directory that gets another parent is written to itself. Only the owner may do so, and no link is followed.
        held = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.chmod(f"/proc/self/fd/{held}", stat.S_IRWXU)
        finally:
            os.close(held)
        os.rename(path, target)


def _new_name() -> str:
    """Return a name that nothing has, and that sorts by time."""
    return f"{time.time_ns():020d}-{secrets.token_hex(4)}"


def _shown(path: Path) -> str:
    """Return a path without what could steer a terminal."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)[:MAX_WHY]
