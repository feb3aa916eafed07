"""Reading beneath one directory descriptor, and nowhere else (DESIGN 4.6).

Rules:

- Every operation checks the names against the view's rules, opens the parent directory beneath the root without
  following a link, and then acts on the last name alone, without following it either. What is swapped in between can
  therefore only be another name below the root.
- A hidden name answers as one that is not there.
- A file with a further name that is hidden is hidden itself.

Weak: where the kernel has no ``openat2``, the way down is opened name by name, which is slower (``disk.openat2``).
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Final

from sublet.disk.openat2 import DIRECTORY_PATH, Opener, choose_opener, open_real
from sublet.workspace.birth import Identity
from sublet.workspace.confined.handles import OPEN_FILE as OPEN_FILE
from sublet.workspace.confined.handles import Directory as Directory
from sublet.workspace.confined.handles import Parent
from sublet.workspace.confined.handles import ReadFile as ReadFile
from sublet.workspace.confined.nested_mounts import NestedMounts
from sublet.workspace.confined.shared import SharedFiles, is_shared
from sublet.workspace.export import ViewRules
from sublet.workspace.own_names import OwnNames
from sublet.workspace.quota import Quota
from sublet.workspace.viewpath import Parts, link_stays, refused

MAX_LINK_HOPS: Final = 16
MAX_LINK_STEPS: Final = 256
"""Components looked up while following the links of one path."""
MAX_LINK_WORK: Final = 4096
"""Components of all those paths together: a look-up costs by its depth, and all of them go on without a pause."""
_SMALL_BLOCK: Final = 512
"""Bytes of the blocks in which ``statvfs`` tells a quota."""

StatVfs = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""bsize, frsize, blocks, bfree, bavail, files, ffree, favail, fsid, flag, namemax."""


class ConfinedFs:
    """What can be read below one directory. It has no operation that changes anything.

    Args:
        root_fd: descriptor of the root, which this object owns from now on.
        rules: names that are hidden or locked.
        quota: counters of what is added; here only shown by ``statvfs``.
        opener: how directories are opened beneath the root; the kernel's best by default.
        own: what the lease made itself under names that rules hide.
        private: whether this is a view that nobody else has, so that no file in it has a name anywhere else.
        patient: whether what takes long to find out is found out at once; else ``NotKnownYet`` asks to come again.
    """

    read_only = True

    def __init__(
        self,
        root_fd: int,
        rules: ViewRules,
        quota: Quota,
        opener: Opener | None = None,
        *,
        own: OwnNames | None = None,
        private: bool = False,
        patient: bool = True,
    ) -> None:
        self._root = root_fd
        self._rules = rules
        self._quota = quota
        self._mounts = NestedMounts(root_fd)
        self._open_beneath = opener or choose_opener()
        self._track_handles = quota.counts_sizes
        self._hides = rules.hides()
        self._own = OwnNames() if own is None else own
        self._private = private
        self._patient = patient
        self._shared = SharedFiles(root_fd, rules, self._mounts, self._open_beneath, self.is_own)

    @staticmethod
    def open_root(path: Path) -> int:
        """Return a descriptor of the directory ``path``, a real path, that can be looked up beneath, but not read.

        Raises:
            OSError: it does not exist, is no directory, or a link has taken the place of a part of it.
        """
        return open_real(path, DIRECTORY_PATH)

    @property
    def rules(self) -> ViewRules:
        """Names that are hidden or locked."""
        return self._rules

    def reopen(self) -> int:
        """Return a further descriptor of the root, which can be listed and outlives this object.

        Raises:
            OSError: it can't be read, or is closed.
        """
        return os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._root)

    def close(self) -> None:
        """Close the root; every later operation fails."""
        if self._root >= 0:
            self._mounts.close()
            os.close(self._root)
            self._root = -1

    def lstat(self, parts: Parts) -> os.stat_result:
        """Return the status of a name, a link's own if it is one.

        Raises:
            OSError: ``ENOENT`` also for a hidden name, and for one that another file system is mounted on.
        """
        self._check_visible(parts)
        if not parts:
            return os.fstat(self._root)
        if len(parts) == 1:
            return self._look_at(self._root, parts)
        directory = self._open_beneath(self._root, b"/".join(parts[:-1]), DIRECTORY_PATH)
        try:
            return self._look_at(directory, parts)
        finally:
            os.close(directory)

    def stat(self, parts: Parts) -> os.stat_result:
        """Return the status of what a name leads to, following links that stay inside.

        Raises:
            OSError: ``EACCES`` where a link leaves, ``ELOOP`` for too many links.
        """
        status = self.lstat(parts)
        return self.lstat(self.resolve(parts)) if stat.S_ISLNK(status.st_mode) else status

    def resolve(self, parts: Parts) -> list[bytes]:
        """Return where ``parts`` leads, each hop checked against the rules as if the client had named it.

        Raises:
            OSError: ``EACCES`` where a link leaves, ``ELOOP`` for too many links.
        """
        todo = list(reversed(parts))
        done: list[bytes] = []
        hops = work = 0
        for _ in range(MAX_LINK_STEPS):
            if not todo:
                return done
            work += len(done) + 1
            if work > MAX_LINK_WORK:
                break
            part = todo.pop()
            if part == b"..":
                if not done:
                    raise refused(errno.EACCES)
                done.pop()
                continue
            candidate = [*done, part]
            if not stat.S_ISLNK(self.lstat(candidate).st_mode):
                done = candidate
                continue
            hops += 1
            target = self.readlink(candidate)
            if hops > MAX_LINK_HOPS:
                break
            todo.extend(p for p in reversed(target.split(b"/")) if p not in (b"", b"."))
        raise refused(errno.ELOOP)

    def readlink(self, parts: Parts) -> bytes:
        """Return a link's target.

        Raises:
            OSError: ``EACCES`` for a target that could leave the view, ``EINVAL`` for what is no link.
        """
        self._check_visible(parts)
        if not parts:
            raise refused(errno.EINVAL)
        with self._parent(parts) as directory:
            self._look_at(directory, parts)
            target = os.readlink(parts[-1], dir_fd=directory)
        if not link_stays(len(parts) - 1, target):
            raise refused(errno.EACCES)
        return target

    def open_read(self, parts: Parts) -> ReadFile:
        """Open a regular file for reading.

        Raises:
            OSError: ``EISDIR`` for a directory, ``ELOOP`` for a link, ``EACCES`` for devices, FIFOs and sockets.
        """
        self._check_visible(parts)
        return ReadFile(self, self._open_regular(parts, os.O_RDONLY), parts)

    def open_directory(self, parts: Parts) -> Directory:
        """Open a directory for listing.

        Raises:
            OSError: as ``open(2)``; a link is not followed.
        """
        self._check_visible(parts)
        try:
            fd = self._open_beneath(self._root, b"/".join(parts) or b".", os.O_RDONLY | os.O_DIRECTORY)
        except NotADirectoryError:
            if self._rules.directory_only(parts):
                raise refused(errno.ENOENT) from None
            raise
        try:
            if parts:
                self.visible(parts, os.fstat(fd), fd)
            return Directory(fd, parts, self)
        except BaseException:
            os.close(fd)
            raise

    def is_own(self, parts: Parts, status: os.stat_result, directory: int, name: bytes) -> bool:
        """Tell whether what ``status`` is of was made by the lease under this name, which rules hide."""
        made = self._own.at(parts)
        return made is not None and made == self._identity(status, directory, name)

    def exchange(self, fd: int, other: int) -> None:
        """Make ``fd``, which an ``open_`` method handed out, another descriptor of what ``other`` is open on."""
        if self._track_handles:
            self._quota.closing(fd)
        os.dup2(other, fd, inheritable=False)
        if self._track_handles:
            self._quota.opened(fd)

    def covers(self, parts: Parts) -> bool:
        """Tell whether something is mounted on this name, or on a directory above it."""
        return self._mounts.covers(parts)

    def shows(self, parts: Parts) -> bool:
        """Tell whether there may be something to be seen under this name; ``visible`` then tells of what is there."""
        if self._rules.hidden(parts) and (not self._own or self._own.at(parts) is None):
            return False
        return not self._mounts.covers(parts)

    def check_shown(self, status: os.stat_result, parts: Parts) -> None:
        """Refuse a file that shows a hidden one by another name.

        Raises:
            OSError: ``ENOENT``.
        """
        if self._hides and is_shared(status) and self._shared.shows_hidden(status, parts, patient=self._patient):
            raise refused(errno.ENOENT)

    def statvfs(self) -> StatVfs:
        """Return the room that is left: the file system's, or the quota's where that is less."""
        s = os.fstatvfs(self._root)
        size = s.f_frsize or s.f_bsize or 4096
        blocks, free, available = s.f_blocks, s.f_bfree, s.f_bavail
        files, files_free = s.f_files, s.f_favail
        quota = self._quota
        if quota.max_bytes is not None:
            size, scale = _SMALL_BLOCK, max(1, size // _SMALL_BLOCK)  # so that a small quota is told exactly enough
            room = max(0, quota.max_bytes - quota.bytes)
            free, available = (min(count * scale, room // size) for count in (free, available))
            # what the lease removed is room beyond the quota, and there can't be more room than there is in all
            blocks = min(blocks * scale, -(-max(quota.max_bytes, room) // size))
        if quota.max_files is not None:
            room = max(0, quota.max_files - quota.files)
            bounded = s.f_files > 0  # some file systems make inodes as they are needed, and say 0
            files_free = min(files_free, room) if bounded else room
            files = min(files, max(quota.max_files, room)) if bounded else max(quota.max_files, room)
        # the file system's id is nobody's business
        flag = 1 if self.read_only else 0
        return size, size, blocks, free, available, files, files_free, files_free, 0, flag, s.f_namemax

    def release(self, fd: int) -> None:
        """Close a descriptor that one of the ``open_`` methods handed out in a handle."""
        if self._track_handles:
            self._quota.closing(fd)
        os.close(fd)

    def _check_visible(self, parts: Parts) -> None:
        if not self.shows(parts):
            raise refused(errno.ENOENT)

    def _look_at(self, directory: int, parts: Parts) -> os.stat_result:
        """Return the status of the last of ``parts`` in the open ``directory``.

        Raises:
            OSError: ``ENOENT`` for what is not there, or not shown.
        """
        status = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
        return self.visible(parts, status, directory, parts[-1])

    def visible(self, parts: Parts, status: os.stat_result, directory: int, name: bytes = b"") -> os.stat_result:
        """Return ``status``, unless what it is of is not shown although its name may be.

        That is what is visible as a directory only, and is none; what somebody put in the place of a hidden name that
        the lease had made; and a file with a further name that is hidden.

        Args:
            parts: the name.
            status: of what is there.
            directory: where the name is, open; or what is there itself, where ``name`` is empty.
            name: the last of ``parts``.

        Raises:
            OSError: ``ENOENT``.
        """
        if not stat.S_ISDIR(status.st_mode):
            if self._rules.directory_only(parts):
                raise refused(errno.ENOENT)
            if status.st_nlink > 1:
                self.check_shown(status, parts)
        if self._own and self._rules.hidden(parts) and not self.is_own(parts, status, directory, name):
            raise refused(errno.ENOENT)
        return status

    def _identity(self, status: os.stat_result, directory: int, name: bytes = b"") -> Identity:
        found = Identity.of(status, directory, name)
        # the device of a private view is another one each time that it is mounted
        return replace(found, device=0) if self._private else found

    def _parent(self, parts: Parts) -> Parent:
        if len(parts) == 1:
            return Parent(self._root, owned=False)
        return Parent(self._open_beneath(self._root, b"/".join(parts[:-1]), DIRECTORY_PATH), owned=True)

    def _open_regular(self, parts: Parts, flags: int) -> int:
        if not parts:
            raise refused(errno.EISDIR)
        with self._parent(parts) as directory:
            self.check_regular(self._look_at(directory, parts))
            fd = os.open(parts[-1], flags | OPEN_FILE, dir_fd=directory)
        return self._adopt(fd, parts)

    def _adopt(self, fd: int, parts: Parts, *, made: bool = False) -> int:
        """Return ``fd`` once it is known to be a regular file still, and one that is shown; else close it."""
        try:
            status = os.fstat(fd)
            self.check_regular(status)
            if not made:
                self.visible(parts, status, fd)
            if self._track_handles:
                self._quota.opened(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    @staticmethod
    def check_regular(status: os.stat_result) -> None:
        """Refuse what is no regular file.

        Raises:
            OSError: ``EISDIR``, ``ELOOP`` or ``EACCES``.
        """
        if stat.S_ISREG(status.st_mode):
            return
        if stat.S_ISDIR(status.st_mode):
            raise refused(errno.EISDIR)
        raise refused(errno.ELOOP if stat.S_ISLNK(status.st_mode) else errno.EACCES)
