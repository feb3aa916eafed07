"""Removing directories that somebody else has filled: iterative, by descriptors, and never outside of them.

An agent or an executor decides what lies below its directory. It may nest a hundred thousand directories, take all
permissions away, set flags, put links and FIFOs anywhere, and go on writing meanwhile. So nothing here recurses, no
path is built (a path may be longer than the kernel takes), no link is followed, no mount is entered, and all of it is
bounded in time and in open descriptors. What can't be removed is told by an ``OSError``; whoever calls this sets it
aside (``set_aside``) or tries again later.

A tree deeper than ``MAX_HELD`` is moved up piece by piece, since the kernel has no way to go down further without a
descriptor for each directory on the way back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from sublet.disk.inode_flags import APPEND_ONLY, IMMUTABLE, make_changeable, set_flags
from sublet.disk.openat2 import DIRECTORY_PATH, choose_opener, rename_noreplace, walk_beneath

REMOVE_SECONDS: Final = 60.0
"""How long one removal may take, whatever is in the directory."""
MAX_HELD: Final = 48
"""Directories that are open at once."""
BATCH_NAMES: Final = 512
"""Names of one directory that are looked at before it is read again."""

_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM})
_Left = Literal["nothing", "file", "directory"]


def remove_tree(directory: Path, *, seconds: float = REMOVE_SECONDS) -> None:
    """Remove one name with all that is below it: a directory, a file, or a link itself. None is no error. Blocks.

    Args:
        directory: the name; the directory that holds it is ours, and is looked up as it stands.
        seconds: how long it may take.

    Raises:
        OSError: something is left: what is mounted there, what our rights don't reach; ``TimeoutError`` after
            ``seconds``. What could be removed is gone, but for a directory of which the first ``BATCH_NAMES`` names
            all stay.
    """
    name = os.fsencode(directory.name)
    try:
        parent = os.open(directory.parent, DIRECTORY_PATH)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        remove_beneath(parent, name, seconds=seconds)
    finally:
        os.close(parent)


@contextlib.contextmanager
def temporary_directory(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Make a private directory for as long as the context lasts, whatever others put into it. What stays is left.

    Args:
        prefix: begins its name.
        parent: where it is made; by default the system's temporary directory.
    """
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield directory
    finally:
        with contextlib.suppress(OSError):
            remove_tree(directory)


def is_removed(directory: Path, *, seconds: float = REMOVE_SECONDS) -> bool:
    """Remove a name as ``remove_tree`` does, and return whether all of it is gone. Blocks; raises nothing."""
    try:
        remove_tree(directory, seconds=seconds)
    except OSError:
        return False
    return True


def remove_beneath(parent: int, name: bytes, *, seconds: float = REMOVE_SECONDS) -> None:
    """Remove one name of an open directory with all that is below it; as ``remove_tree``.

    Args:
        parent: descriptor of the directory; ``O_PATH`` is enough.
        name: a single component.
        seconds: how long it may take.

    Raises:
        OSError: as ``remove_tree``.
    """
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    _Removal(parent, name, time.monotonic() + seconds).run()


@dataclass(slots=True)
class _Frame:
    """One open directory: what its parent calls it, and which of its names are still to be looked at."""

    fd: int
    name: bytes
    names: list[bytes] = field(default_factory=list)
    read: bool = False
    progress: bool = False
    """Whether anything went since it was read last."""
    opened_up: bool = False


class _Removal:
    def __init__(self, parent: int, name: bytes, give_up: float) -> None:
        self._parent = parent
        self._name = name
        self._give_up = give_up
        self._opener = choose_opener()
        self._stack: list[_Frame] = []
        self._error: OSError | None = None
        self._moved = secrets.token_hex(8).encode()
        self._number = 0
        self._mount = b""

    def run(self) -> None:
        """Remove it.

        Raises:
            OSError: the last reason for which something stays.
        """
        try:
            self._run()
        finally:
            while self._stack:
                os.close(self._stack.pop().fd)
        if _exists(self._parent, self._name):
            raise self._error or OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    def _run(self) -> None:
        if self._unlink(self._parent, self._name) != "directory":
            return
        if (top := self._enter(self._parent, self._name)) is None:
            return
        self._stack.append(_Frame(top, self._name))
        while self._stack:
            if time.monotonic() > self._give_up:
                raise TimeoutError(errno.ETIMEDOUT, "removing it takes too long")
            frame = self._stack[-1]
            if (name := self._next(frame)) is None:
                self._leave()
            elif (left := self._unlink(frame.fd, name, frame)) != "directory":
                frame.progress |= left == "nothing"
            elif len(self._stack) >= MAX_HELD:
                frame.progress |= self._moved_up(frame, name)
            elif (below := self._enter(frame.fd, name)) is not None:
                self._stack.append(_Frame(below, name))

    def _next(self, frame: _Frame) -> bytes | None:
        """Return the next name of a directory; None once nothing more of it can be removed."""
        if not frame.names:
            if frame.read and not frame.progress:
                return None
            frame.names = self._listed(frame)
            frame.read, frame.progress = True, False
        return frame.names.pop() if frame.names else None

    def _listed(self, frame: _Frame) -> list[bytes]:
        try:
            return list(_names(frame.fd))
        except OSError as error:
            self._error = error
            return []

    def _leave(self) -> None:
        """Remove the directory at the end of the stack, which should be empty."""
        gone = self._stack.pop()
        os.close(gone.fd)
        above = self._stack[-1] if self._stack else None
        parent = self._parent if above is None else above.fd
        if self._without_directory(parent, gone.name, above) and above is not None:
            above.progress = True

    def _without_directory(self, parent: int, name: bytes, frame: _Frame | None) -> bool:
        """Remove an empty directory and tell whether that was done."""
        for attempt in range(2):
            try:
                os.rmdir(name, dir_fd=parent)
            except FileNotFoundError:
                return True
            except OSError as error:
                self._error = error
                if attempt or error.errno not in _DENIED:
                    return False
                self._open_up(parent, name, frame)
            else:
                return True
        return False

    def _unlink(self, parent: int, name: bytes, frame: _Frame | None = None) -> _Left:
        """Remove a name that is no directory, and return what is there afterwards."""
        for attempt in range(2):
            regular = False
            try:
                kind = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
                if stat.S_ISDIR(kind):
                    return "directory"
                regular = stat.S_ISREG(kind)
                os.unlink(name, dir_fd=parent)
            except FileNotFoundError:
                return "nothing"
            except IsADirectoryError:
                return "directory"  # exchanged since it was looked at
            except OSError as error:
                self._error = error
                if attempt or error.errno not in _DENIED:
                    break
                self._open_up(parent, name if regular else b"", frame)
            else:
                return "nothing"
        return "file"

    def _enter(self, parent: int, name: bytes) -> int | None:
        """Open a directory to list it, whatever its mode. None where it can't be, or is mounted on."""
        try:
            return self._opened(parent, name)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._error = error
            if error.errno not in _DENIED:
                return None
        with contextlib.suppress(OSError):
            _permit(parent, name)
            return self._opened(parent, name)
        return None

    def _opened(self, parent: int, name: bytes) -> int:
        fd = self._opener(parent, name, _LIST)
        if self._opener is walk_beneath:  # which enters mounts
            mount = _mount_of(fd)
            self._mount = self._mount or _mount_of(self._parent)
            if mount != self._mount:
                os.close(fd)
                raise OSError(errno.EXDEV, "something is mounted there")
        return fd

    def _moved_up(self, frame: _Frame, name: bytes) -> bool:
        """Move a directory that is too deep to the top, where it is found again."""
        top = self._stack[0]
        self._number += 1
        target = b"%s-%d" % (self._moved, self._number)
        for attempt in range(2):
            try:
                rename_noreplace(frame.fd, name, top.fd, target)
            except FileNotFoundError:
                return True
            except OSError as error:
                self._error = error
                if attempt or error.errno not in _DENIED:
                    return False
                with contextlib.suppress(OSError):
                    _permit(frame.fd, name)  # a directory gets a new parent, so it is written to itself
                self._open_up(frame.fd, name, frame)
                self._open_up(top.fd, b"", top)
            else:
                top.progress = True
                return True
        return False

    def _open_up(self, parent: int, name: bytes, frame: _Frame | None) -> None:
        """Take away what keeps a name from being removed: the mode and flags of its directory, and its own flags."""
        if name:
            make_changeable(parent, name)
        if frame is not None and not frame.opened_up:
            frame.opened_up = True
            set_flags(frame.fd, remove=IMMUTABLE | APPEND_ONLY)
            with contextlib.suppress(OSError):
                os.fchmod(frame.fd, stat.S_IRWXU)


def _names(fd: int) -> Iterator[bytes]:
    with os.scandir(fd) as entries:
        for number, entry in enumerate(entries, 1):
            yield os.fsencode(entry.name)
            if number == BATCH_NAMES:
                return


def _exists(parent: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _permit(parent: int, name: bytes) -> None:
    """Give its owner all permissions of a directory. The path through ``/proc`` changes exactly what is held."""
    held = os.open(name, DIRECTORY_PATH | os.O_NOFOLLOW, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{held}", stat.S_IRWXU)
    finally:
        os.close(held)


def _mount_of(fd: int) -> bytes:
    """Return the id of the mount that a descriptor is on; empty where the kernel does not tell."""
    with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{fd}", "rb") as info:
        for line in info:
            if line.startswith(b"mnt_id:"):
                return line.split()[1]
    return b""
