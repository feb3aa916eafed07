"""What a private tree holds, name by name with SHA-256, and what differs after work in it (DESIGN 4.6)."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from sublet.workspace.archive.tar_format import Kind, Parts
from sublet.workspace.archive.tree_pack import AllVisible
from sublet.workspace.archive.wire import Planned
from sublet.workspace.audit.manifest import Stamp
from sublet.workspace.confined.bounds import open_up
from sublet.workspace.confined.fs import OPEN_FILE
from sublet.workspace.view.walk import Budget, Directory, Unread, walk

_READ_BYTES: Final = 1024 * 1024


class Interrupted(Exception):
    """The survey was given up."""


class TreeEntry(NamedTuple):
    """One name: what it is, its permission bits, and the SHA-256 of its content or of its target."""

    kind: Kind
    mode: int
    digest: bytes
    stamp: Stamp


Holdings = Mapping[Parts, TreeEntry]


def survey(
    name: bytes,
    root_fd: int,
    budget: Budget,
    known: Holdings,
    digests: Mapping[Parts, bytes],
    is_halted: Callable[[], bool],
) -> dict[Parts, TreeEntry]:
    """Return what lies below ``root_fd``, each name below ``name``.

    What an agent has shut against its own user, which runs this, is opened again: it must not pass for removed.

    Args:
        name: first component of all names.
        root_fd: the directory, which stays the caller's.
        budget: bounds of the walk.
        known: what was held before; of a file with the same stamp, the content is not read again.
        digests: SHA-256 of contents that are known otherwise.
        is_halted: tells whether to give up.

    Raises:
        WalkOverrunError: when the budget is spent.
        Interrupted: it was given up.
        OSError: something can't be read, so that nobody can tell what differs.
    """
    found: dict[Parts, TreeEntry] = {}
    for directory in walk(root_fd, AllVisible(), budget):
        if isinstance(directory, Unread):
            raise OSError(0, directory.reason)
        for entry, st in directory.entries:
            if is_halted():
                raise Interrupted
            open_up(directory.fd, entry, st)
            parts = (name, *directory.parts, entry)
            stamp, mode = Stamp.of(st), st.st_mode & 0o777
            if stat.S_ISDIR(st.st_mode):
                found[parts] = TreeEntry("directory", mode, b"", stamp)
            elif stat.S_ISLNK(st.st_mode):
                found[parts] = TreeEntry("symlink", 0o777, os.readlink(entry, dir_fd=directory.fd), stamp)
            elif stat.S_ISREG(st.st_mode):
                before = known.get(parts)
                digest = digests.get(parts)
                if before is not None and before.stamp == stamp:
                    digest = before.digest
                found[parts] = TreeEntry("file", mode, digest or _digest(directory, entry, is_halted), stamp)
    return found


def difference(before: Holdings, after: Holdings) -> list[Planned]:
    """Return the changes that make ``after`` of ``before``: removals, the deepest first, then what is new or changed.

    Times alone are no change. What became of another kind is removed first, where either is a directory.
    """
    removed = sorted(_removed(before, after), key=lambda parts: (-len(parts), parts))
    plan = [Planned(parts, "deleted") for parts in removed]
    inodes: set[int] = set()
    for parts, held in after.items():
        old = before.get(parts)
        if old is not None and (old.kind, old.mode, old.digest) == (held.kind, held.mode, held.digest):
            continue
        if held.kind != "file":
            plan.append(Planned(parts, held.kind))
        elif held.stamp.inode in inodes:
            plan.append(Planned(parts, "hardlink"))
        else:
            plan.append(Planned(parts, "file", held.stamp.size))
        inodes.add(held.stamp.inode)
    return plan


def _removed(before: Holdings, after: Holdings) -> Iterator[Parts]:
    for parts, old in before.items():
        new = after.get(parts)
        if new is None or (old.kind != new.kind and "directory" in (old.kind, new.kind)):
            yield parts


def _digest(directory: Directory, name: bytes, is_halted: Callable[[], bool]) -> bytes:
    digest = hashlib.sha256()
    fd = os.open(name, os.O_RDONLY | OPEN_FILE, dir_fd=directory.fd)
    try:
        while piece := os.read(fd, _READ_BYTES):
            if is_halted():  # a sparse file may take longer than the lease lasts
                raise Interrupted
            digest.update(piece)
    finally:
        os.close(fd)
    return digest.digest()
