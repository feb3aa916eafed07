"""What is open beneath a root: a parent directory for a moment, a directory that is listed, a file that is read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Protocol

from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.export import ViewRules
from sublet.workspace.viewpath import Parts

# A FIFO, whose open would block, is refused by its type before it is opened; O_NONBLOCK is for one swapped in after.
OPEN_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SKIPPED_AT_ONCE: Final = 64
"""Entries that are not shown, and are passed over before others get the loop."""


class Shown(Protocol):
    """What a handle asks of the tree that it is in; implemented by ``ConfinedFs``."""

    @property
    def rules(self) -> ViewRules:
        """Names that are hidden or locked."""

    def covers(self, parts: Parts) -> bool:
        """Tell whether something is mounted on this name, or on a directory above it."""

    def shows(self, parts: Parts) -> bool:
        """Tell whether there may be something to be seen under this name."""

    def visible(self, parts: Parts, status: os.stat_result, directory: int, name: bytes = b"") -> os.stat_result:
        """Return ``status``, unless what it is of is not shown although its name may be."""

    def check_shown(self, status: os.stat_result, parts: Parts) -> None:
        """Refuse a file that shows a hidden one by another name."""

    def release(self, fd: int) -> None:
        """Close a descriptor of a file."""

    def exchange(self, fd: int, other: int) -> None:
        """Make ``fd`` another descriptor of what ``other`` is open on."""


class Parent:
    """Context of an open parent directory; closes it unless it is the root's own descriptor."""

    __slots__ = ("_fd", "_owned")

    def __init__(self, fd: int, *, owned: bool) -> None:
        self._fd = fd
        self._owned = owned

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if self._owned:
            os.close(self._fd)


class Directory(Iterator[tuple[bytes, os.stat_result] | None]):
    """An open directory: its visible entries, each with its own status, links not followed."""

    def __init__(self, fd: int, parts: Parts, fs: Shown) -> None:
        self._fd = fd
        self._parts = tuple(parts)
        self._fs = fs
        self._hidden, self._directory_only = fs.rules.hidden, fs.rules.directory_only
        self._covers = fs.covers
        self._entries = os.scandir(fd)
        self._undecided: os.DirEntry[str] | None = None

    def stat(self) -> os.stat_result:
        """Return the directory's own status."""
        return os.fstat(self._fd)

    def entries(self) -> Iterator[tuple[bytes, os.stat_result]]:
        """Yield what is left of the entries; a name that vanishes meanwhile is left out."""
        return (entry for entry in self if entry is not None)

    def entries_or_pauses(self) -> Iterator[tuple[bytes, os.stat_result] | None]:
        """Return what is left of the entries, and None in place of some that are not shown, so that others go on.

        Where ``NotKnownYet`` comes instead of an entry, that entry is still to come.
        """
        return self

    def __iter__(self) -> Iterator[tuple[bytes, os.stat_result] | None]:
        return self

    def __next__(self) -> tuple[bytes, os.stat_result] | None:
        fs = self._fs
        for _ in range(_SKIPPED_AT_ONCE):
            entry = self._undecided or next(self._entries)
            self._undecided = None
            name = os.fsencode(entry.name)
            parts = (*self._parts, name)
            hidden = self._hidden(parts)
            if (hidden and not fs.shows(parts)) or self._covers(parts):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
                if not hidden and (
                    stat.S_ISDIR(status.st_mode) or (status.st_nlink == 1 and not self._directory_only(parts))
                ):
                    return name, status  # as nearly all are
                return name, fs.visible(parts, status, self._fd, name)
            except FileNotFoundError:
                continue
            except NotKnownYet:
                self._undecided = entry
                raise
        return None

    def close(self) -> None:
        """Close the listing and the descriptor; calling it twice is an error of the caller."""
        self._entries.close()
        os.close(self._fd)


class ReadFile:
    """A regular file that is open for reading."""

    __slots__ = ("_fs", "_parts", "fd")

    def __init__(self, fs: Shown, fd: int, parts: Parts) -> None:
        self._fs = fs
        self._parts = tuple(parts)
        self.fd = fd

    def read(self, size: int, offset: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``, none at the end.

        Raises:
            OSError: ``ENOENT`` where the file has come to be a hidden one's.
        """
        status = os.fstat(self.fd)
        if status.st_nlink > 1:
            self._fs.check_shown(status, self._parts)
        return os.pread(self.fd, size, offset)

    def stat(self) -> os.stat_result:
        """Return the file's status."""
        return os.fstat(self.fd)

    def duplicate(self) -> int:
        """Return a second descriptor of the open file, which stays valid when the handle is closed."""
        return os.dup(self.fd)

    def close(self) -> None:
        """Give the descriptor back to the file system that has opened it."""
        self._fs.release(self.fd)
