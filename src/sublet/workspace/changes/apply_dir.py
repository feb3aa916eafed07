"""The hidden directory in a directory that is being changed: what comes is prepared there, what goes lies there."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from types import TracebackType
from typing import Final

from sublet.disk.durable import Syncing
from sublet.disk.openat2 import exchange
from sublet.disk.plain_file import open_plain
from sublet.disk.removal import remove_beneath
from sublet.workspace.changes.edits import Step
from sublet.workspace.changes.transaction_plan import PlannedStep
from sublet.workspace.changes.tree import SPECIAL_BITS, PathContents, Tree
from sublet.workspace.staging.copy import copy_content

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ACL: Final = "system.posix_acl_access"
_DEFAULT_ACL: Final = "system.posix_acl_default"
_NO_LINK: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_EXCHANGE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})


def prepared(number: int) -> bytes:
    """Return the name of what step ``number`` puts in place; after an exchange, of what it has displaced."""
    return b"new-%d" % number


def displaced(number: int) -> bytes:
    """Return the name of what step ``number`` has taken away."""
    return b"old-%d" % number


class ApplyDir:
    """One that is open.

    Args:
        tree: the directory it is in.
        name: its name there.
        fd: its descriptor, owned by this object from now on.
    """

    def __init__(self, tree: Tree, name: bytes, fd: int) -> None:
        self._tree = tree
        self._name = name
        self.fd = fd
        self.can_exchange = True
        self._syncing = Syncing()
        self._made: dict[tuple[int, int], tuple[bytes, bool]] = {}
        self._directories: dict[bytes, PathContents] = {}

    @classmethod
    def make(cls, tree: Tree, name: bytes) -> ApplyDir:
        """Make the directory and find out whether its file system exchanges names.

        Raises:
            OSError: it can't be made.
        """
        os.mkdir(name, 0o700, dir_fd=tree.fd)
        apply_dir = cls.open(tree, name)
        for probe in (b"probe-1", b"probe-2"):
            os.close(os.open(probe, _CREATE, 0o600, dir_fd=apply_dir.fd))
        try:
            exchange(apply_dir.fd, b"probe-1", apply_dir.fd, b"probe-2")
        except OSError as exc:
            if exc.errno not in _NO_EXCHANGE:
                apply_dir.close()
                raise
            apply_dir.can_exchange = False
        return apply_dir

    @classmethod
    def open(cls, tree: Tree, name: bytes) -> ApplyDir:
        """Open one that is there.

        Raises:
            FileNotFoundError: it is not.
        """
        return cls(tree, name, os.open(name, _DIRECTORY, dir_fd=tree.fd))

    def __enter__(self) -> ApplyDir:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close it; what is in it stays."""
        os.close(self.fd)

    def prepare(self, number: int, step: Step) -> PlannedStep:
        """Make what the step puts in place, and return the step as the plan has it.

        Raises:
            OSError: it can't be written.
        """
        name = prepared(number)
        inode = 0
        expect = step.expect
        if step.operation == "mkdir":
            self._directory(name, step)
        elif step.operation == "chmod" and expect.kind == "absent":
            expect = self._directories[step.path]
        elif step.make is not None and step.make.target is not None:
            os.symlink(step.make.target, name, dir_fd=self.fd)
            self._own(name, step.make.owner, step.path)
        elif step.make is not None:
            self._file(name, step)
        if step.operation in ("mkdir", "put", "swap"):
            inode = os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_ino
        return PlannedStep(step.operation, step.path, expect, step.make, step.permissions, inode)

    def sync(self) -> None:
        """Return when all that was prepared would survive a loss of power."""
        self._syncing.finish(self.fd)

    def keep(self, name: bytes, target: int, number: int) -> None:
        """Move what was displaced to ``number`` in the directory ``target``; nothing to do where that is done.

        Raises:
            OSError: it can't be moved.
        """
        kept = b"%d" % number
        try:
            os.rename(name, kept, src_dir_fd=self.fd, dst_dir_fd=target)
            return
        except FileNotFoundError:
            return
        except OSError as exc:
            if exc.errno != errno.EXDEV:
                raise
        draft = kept + b".new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=target)
        copy_name(self.fd, name, target, draft)
        os.rename(draft, kept, src_dir_fd=target, dst_dir_fd=target)
        os.unlink(name, dir_fd=self.fd)

    def remove(self) -> None:
        """Remove it with all that is left in it.

        Raises:
            OSError: something can't be removed.
        """
        remove_beneath(self._tree.fd, self._name)

    def _file(self, name: bytes, step: Step) -> None:
        make = step.make
        assert make is not None
        assert make.source is not None
        source = open_plain(make.source)
        try:
            if self._linked(name, step, source):
                return
            fd = os.open(name, _CREATE, 0o600, dir_fd=self.fd)
            try:
                copy_content(source, fd, os.fstat(source).st_size)
                if make.original:
                    copy_attributes(source, fd)
                elif step.expect.kind == "file":
                    self._attributes(step.path, fd)
                else:
                    self._inherit(step.path, fd)
                self._own(name, make.owner, step.path)
                os.fchmod(fd, make.permissions)
                if make.modified_ns is not None:
                    os.utime(fd, ns=(make.modified_ns, make.modified_ns))
                self._syncing.add(fd)
            finally:
                os.close(fd)
        finally:
            os.close(source)

    def _linked(self, name: bytes, step: Step, source: int) -> bool:
        """Make one more name of what was made of the same source, and tell whether that was done.

        A name that stood there before the change says to whom the file belongs, and what its permissions are.
        """
        make = step.make
        assert make is not None
        if make.alone:
            return False
        status = os.fstat(source)
        identity, stood = (status.st_dev, status.st_ino), step.expect.kind == "file"
        first, settled = self._made.setdefault(identity, (name, stood))
        if first == name:
            return False
        try:
            os.link(first, name, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)
        except OSError as exc:
            if exc.errno not in _NO_LINK:
                raise
            return False
        if stood and not settled:
            self._made[identity] = (first, True)
            self._own(name, make.owner, step.path)
            os.chmod(name, make.permissions, dir_fd=self.fd)
        return True

    def _directory(self, name: bytes, step: Step) -> None:
        os.mkdir(name, 0o700, dir_fd=self.fd)
        fd = os.open(name, _DIRECTORY, dir_fd=self.fd)
        try:
            self._inherit(step.path, fd)
            self._own(name, None, step.path)
            os.fchmod(fd, step.permissions & 0o777)
            made = os.fstat(fd)
            permissions = made.st_mode & SPECIAL_BITS
            self._directories[step.path] = PathContents("directory", None, permissions, made.st_ino)
        finally:
            os.close(fd)

    def _attributes(self, path: bytes, target: int) -> None:
        """Give a new file the access list and extended attributes of the file that it will replace."""
        with contextlib.suppress(OSError), self._tree.parent(path) as (directory, name):
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
            try:
                copy_attributes(f"/proc/self/fd/{fd}", target)
            finally:
                os.close(fd)

    def _inherit(self, path: bytes, target: int) -> None:
        """Give a new name the access list that the directory it comes into has for what is made in it."""
        with contextlib.suppress(OSError), self._tree.open_nearest(path) as above:
            access_list = os.getxattr(f"/proc/self/fd/{above}", _DEFAULT_ACL)
            os.setxattr(target, _ACL, access_list)
            if stat.S_ISDIR(os.fstat(target).st_mode):
                os.setxattr(target, _DEFAULT_ACL, access_list)

    def _own(self, name: bytes, owner: tuple[int, int] | None, path: bytes) -> None:
        """Give a new name to whom the old one belonged, or else to the owner of the directory.

        Who is not root can give it to a group of its own only: that of the old name, or of a directory that passes its
        group on.
        """
        if os.geteuid() == 0:
            if owner is None:
                status = self._tree.nearest(path)
                owner = (status.st_uid, status.st_gid)
            os.chown(name, *owner, dir_fd=self.fd, follow_symlinks=False)
            return
        group = None if owner is None else owner[1]
        if owner is None and (status := self._tree.nearest(path)).st_mode & stat.S_ISGID:
            group = status.st_gid
        if group is not None:
            with contextlib.suppress(OSError):  # of a group of somebody else's
                os.chown(name, -1, group, dir_fd=self.fd, follow_symlinks=False)


def copy_name(source_dir: int, source: bytes, target_dir: int, target: bytes) -> None:
    """Copy one file or link with its mode, times and attributes, and write it out.

    Raises:
        OSError: it can't be copied.
    """
    status = os.stat(source, dir_fd=source_dir, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source, dir_fd=source_dir), target, dir_fd=target_dir)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=target_dir, follow_symlinks=False)
        return
    original = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=source_dir)
    try:
        copy = os.open(target, _CREATE, 0o600, dir_fd=target_dir)
        try:
            copy_content(original, copy, status.st_size)
            copy_attributes(original, copy)
            os.fchmod(copy, status.st_mode & 0o7777)
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.fsync(copy)
        finally:
            os.close(copy)
    finally:
        os.close(original)


def copy_attributes(source: int | str, target: int) -> None:
    """Copy the access list and what extended attributes a user may set.

    Args:
        source: an open file, or a path that leads to it.
        target: the open file that gets them.
    """
    try:
        names = os.listxattr(source)
    except OSError:
        return
    for name in names:
        if name.startswith("user.") or name == _ACL:
            with contextlib.suppress(OSError):  # a file system without them, or no room
                os.setxattr(target, name, os.getxattr(source, name))
