"""What is mounted inside a lent directory: other file systems, which are never looked into.

A lease lends one directory of one file system. What somebody mounted inside is somebody else's: other people's files,
a network share, a FUSE file system that may never answer, and with it would block whoever touches it. Admission lists
such names, and scan, export and audit leave them out. The names come from the kernel's table, so that finding them
touches nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Final

from sublet.workspace.mount.table import read_table
from sublet.workspace.viewpath import Parts

FRESH_SECONDS: Final = 1.0
"""How old what we know of the table may be. The kernel itself refuses to go into newer mounts where it has openat2."""


class NestedMounts:
    """The mount points strictly below an open directory, wherever that is now.

    Args:
        root_fd: descriptor of the directory, which stays the caller's and open as long as this is used.
    """

    def __init__(self, root_fd: int) -> None:
        self._root_fd = root_fd
        self._mount_id = _mount_id(root_fd)
        self._points: frozenset[tuple[bytes, ...]] = frozenset()
        self._stale_at = float("-inf")

    def covers(self, parts: Parts) -> bool:
        """Tell whether something is mounted on this name, or on a directory above it."""
        if time.monotonic() >= self._stale_at:
            self._refresh()
        points = self._points
        return bool(points) and any(tuple(parts[:end]) in points for end in range(1, len(parts) + 1))

    def lie_below(self, parts: Parts) -> bool:
        """Tell whether something is mounted below this directory, so that moving it would move that, too."""
        if time.monotonic() >= self._stale_at:
            self._refresh()
        size = len(parts)
        return any(len(point) > size and point[:size] == tuple(parts) for point in self._points)

    def close(self) -> None:
        """Look at the descriptor no more."""
        self._points = frozenset()
        self._stale_at = float("inf")

    def _refresh(self) -> None:
        self._stale_at = time.monotonic() + FRESH_SECONDS
        with contextlib.suppress(OSError):  # no /proc: the kernel's own refusal is left
            self._points = self._read()

    def _read(self) -> frozenset[tuple[bytes, ...]]:
        # Only what is mounted directly on the directory's own file system: all else lies below such a point. A root
        # whose mount is in another namespace has none that this process could name.
        root = os.fsencode(os.readlink(f"/proc/self/fd/{self._root_fd}")).rstrip(b"/") + b"/"
        return frozenset(
            tuple(mount.point[len(root) :].split(b"/"))
            for mount in read_table()
            if mount.parent_id == self._mount_id and mount.point.startswith(root) and mount.point != root
        )


def _mount_id(fd: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{fd}", "rb") as info:
        for line in info:
            name, _, value = line.partition(b":")
            if name == b"mnt_id":
                return int(value)
    return -1
