"""The one walk over what a lease exports: by descriptors, never following a link, bounded in depth, count and time.

It stays in the file system of its root: what is mounted inside is named, and not so much as looked at.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sublet.disk.openat2 import choose_opener, open_real
from sublet.workspace.confined.bounds import MAX_DEPTH
from sublet.workspace.confined.nested_mounts import NestedMounts
from sublet.workspace.confined.shared import SharedFiles, is_shared
from sublet.workspace.export import ViewRules

Parts = tuple[bytes, ...]

OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WalkOverrunError(Exception):
    """The walk reached its bound on entries or time; the text says which."""


@dataclass(slots=True)
class Directory:
    """One directory of the walk, open while it is handed out.

    ``entries`` are the visible names with their ``lstat``; ``hidden`` the names that rules hide, and those of a file
    that has such a name as well; ``mounts`` the others that something is mounted on.
    """

    fd: int
    parts: Parts
    entries: list[tuple[bytes, os.stat_result]] = field(default_factory=list)
    hidden: list[bytes] = field(default_factory=list)
    mounts: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Unread:
    """A directory that could not be entered, and why."""

    parts: Parts
    reason: str


class Budget:
    """Bounds of one walk.

    Args:
        entries: visible names that may be met.
        seconds: time the walk may take, on the monotonic clock, counted from now.
    """

    __slots__ = ("_deadline", "_entries", "_left", "_seconds")

    def __init__(self, entries: int, seconds: float) -> None:
        self._entries = self._left = entries
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds

    def spend(self, entries: int) -> None:
        """Count ``entries`` more and look at the clock.

        Raises:
            WalkOverrunError: when either bound is passed.
        """
        self._left -= entries
        if self._left < 0:
            raise WalkOverrunError(f"more than {self._entries:,} names")
        if time.monotonic() > self._deadline:
            raise WalkOverrunError(f"more than can be looked at within {self._seconds:g} s")


def open_root(root: Path) -> int:
    """Return a descriptor of the workspace root, a real path.

    Raises:
        OSError: where it does not exist, is no directory, can't be read, or a link has taken the place of a part of it.
    """
    return open_real(root, OPEN_DIRECTORY)


def walk(root_fd: int, rules: ViewRules, budget: Budget) -> Iterator[Directory | Unread]:
    """Yield the root and every visible directory below it, parents first, in the order of their names.

    Names that vanish while the walk goes on are left out. A directory's descriptor is closed when its subdirectories
    are done. ``root_fd`` stays the caller's.

    Raises:
        WalkOverrunError: when the budget is spent.
        OSError: where the root itself can't be listed.
    """
    nested = NestedMounts(root_fd)
    shared = SharedFiles(root_fd, rules, nested, choose_opener(), lambda *_: False) if rules.hides() else None
    top = _list(os.dup(root_fd), (), rules, nested, shared, budget)
    stack = [(top.fd, _subdirectories(top))]
    try:
        yield top
        while stack:
            fd, pending = stack[-1]
            parts = next(pending, None)
            if parts is None:
                stack.pop()
                os.close(fd)
                continue
            if len(stack) > MAX_DEPTH:
                yield Unread(parts, f"nested deeper than {MAX_DEPTH} directories")
                continue
            try:
                child = _list(os.open(parts[-1], OPEN_DIRECTORY, dir_fd=fd), parts, rules, nested, shared, budget)
            except (FileNotFoundError, NotADirectoryError):
                continue  # removed or replaced since its parent was listed
            except OSError as exc:
                yield Unread(parts, os.strerror(exc.errno or 0))
                continue
            stack.append((child.fd, _subdirectories(child)))
            yield child
    finally:
        for fd, _ in stack:
            os.close(fd)


def _list(
    fd: int, parts: Parts, rules: ViewRules, nested: NestedMounts, shared: SharedFiles | None, budget: Budget
) -> Directory:
    """Return the directory behind ``fd``, which is closed where that fails."""
    directory = Directory(fd, parts)
    try:
        with os.scandir(fd) as scan:
            # scandir of a descriptor gives str names; fsencode gives back the very bytes
            for entry in scan:
                name = os.fsencode(entry.name)
                budget.spend(1)
                if rules.hidden((*parts, name)):
                    directory.hidden.append(name)
                    continue
                if nested.covers((*parts, name)):
                    directory.mounts.append(name)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    below = (*parts, name)
                    hidden = not stat.S_ISDIR(status.st_mode) and rules.directory_only(below)
                    if not hidden and shared is not None and is_shared(status):
                        hidden = shared.shows_hidden(status, below, patient=True)
                    if hidden:
                        directory.hidden.append(name)
                    else:
                        directory.entries.append((name, status))
    except BaseException:
        os.close(fd)
        raise
    directory.entries.sort(key=lambda e: e[0])
    return directory


def _subdirectories(directory: Directory) -> Iterator[Parts]:
    parts = directory.parts
    names = [name for name, st in directory.entries if stat.S_ISDIR(st.st_mode)]  # its entries are not kept meanwhile
    return ((*parts, name) for name in names)
