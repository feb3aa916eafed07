"""Changing what lies beneath one directory descriptor: the read-write half of the confined file system (DESIGN 4.6)."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from sublet.workspace.confined.bounds import readable_directory, readable_file
from sublet.workspace.confined.changing import HIDES, LEADS_OUT, SHARED, UNCHECKED
from sublet.workspace.confined.file import PERMISSION_BITS, WriteFile
from sublet.workspace.confined.handles import OPEN_FILE, ReadFile
from sublet.workspace.confined.moving import MovingFs
from sublet.workspace.confined.shared import is_shared_at
from sublet.workspace.viewpath import Parts, link_stays, refused

_MAX_CREATE_RACES: Final = 8


class WritableFs(MovingFs):
    """What can be read and changed below one directory; its arguments are those of ``MovingFs``."""

    read_only = False

    def twin(self) -> WritableFs:
        """Return the same tree once more, with a descriptor of its own that outlives this object's, and patient.

        Raises:
            OSError: as ``reopen``.
        """
        return WritableFs(
            self.reopen(),
            self._rules,
            self._quota,
            self._tell,
            self._open_beneath,
            own=self._own,
            private=self._private,
            on_refused=self._on_refused,
            any_link=self._any_link,
            on_marks=self._on_marks,
        )

    def has_own(self, parts: Parts) -> bool:
        """Tell whether what has this name was made by the lease, under a name that counts as such.

        Raises:
            OSError: there is nothing, or it can't be looked at.
        """
        with self._parent(parts) as directory:
            status = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
            return self.is_own(parts, status, directory, parts[-1])

    def open_read(self, parts: Parts) -> ReadFile:
        """Open a regular file for reading; its mode and times can be set through it, too, unless it is locked.

        Raises:
            OSError: as ``ConfinedFs.open_read``.
        """
        if self._rules.locked(parts) or self._rules.kept(parts):
            return super().open_read(parts)
        self._check_visible(parts)
        return self._file(self._open_regular(parts, os.O_RDONLY), parts, append=False)

    def open_write(self, parts: Parts, flags: int, mode: int) -> WriteFile:
        """Open a regular file for writing.

        Args:
            parts: the file.
            flags: ``O_WRONLY`` or ``O_RDWR`` with any of ``O_APPEND``, ``O_CREAT``, ``O_TRUNC``, ``O_EXCL``.
            mode: permission bits of a file that is created, whatever this process's umask.

        Raises:
            OSError: ``EDQUOT``, ``EACCES`` for hidden, locked and special names, and as ``open(2)``.
        """
        self._check_mutable(parts, new=bool(flags & os.O_CREAT))
        self._check_unchecked(parts)
        if not flags & os.O_EXCL:
            self._check_replaceable(parts)
        access = flags & (os.O_WRONLY | os.O_RDWR | os.O_APPEND)
        if flags & os.O_CREAT:
            fd, created = self._open_or_create(parts, access, mode, exclusive=bool(flags & os.O_EXCL))
        else:
            fd, created = self._open_regular(parts, access), False
        try:
            if not created:
                self._check_draft(parts, os.fstat(fd), fd, b"")
        except OSError:
            self.release(fd)
            raise
        file = self._file(fd, parts, append=bool(flags & os.O_APPEND))
        if created:
            self._tell(parts)
        elif flags & os.O_TRUNC:
            try:
                file.truncate(0)
            except BaseException:
                file.close()
                raise
        return file

    def set_attributes(
        self,
        parts: Parts,
        *,
        size: int | None = None,
        mode: int | None = None,
        times: tuple[int, int] | None = None,
        follow: bool = True,
    ) -> None:
        """Change a name's size, permission bits or times.

        With none of them given it only makes sure that the name exists: a change of owner is accepted and ignored, so
        that unpacking an archive as root works. So are all changes of the root itself, which is the delegator's.

        Raises:
            OSError: ``EACCES`` for hidden and locked names and for modes that would hide something from the audit,
                ``EOPNOTSUPP`` for the mode of a link.
        """
        if not parts and size is None:
            return
        if follow and parts and stat.S_ISLNK(self.lstat(parts).st_mode):
            parts = self.resolve(parts)
        self._check_mutable(parts, directory=True)
        if mode is not None:
            self._check_replaceable(parts)
        if size is not None:
            file = self.open_write(parts, os.O_WRONLY, 0)
            try:
                file.truncate(size)
            finally:
                file.close()
        with self._parent(parts) as directory:
            status = self._look_at(directory, parts)
            if mode is not None and stat.S_ISLNK(status.st_mode):
                raise refused(errno.EOPNOTSUPP)
            if mode is not None:
                self.check_mode(parts, status, mode)
            if size is None and mode is None and times is None:
                return
            self._check_draft(parts, status, directory, parts[-1])
            self.claim(parts, status)
            if stat.S_ISDIR(status.st_mode) and mode is not None and self._keeper is not None:
                self._keeper.before_directory(parts, status)
            if mode is not None:
                self._set_mode(directory, parts, mode)
            if times is not None:
                os.utime(parts[-1], times=times, dir_fd=directory, follow_symlinks=False)
            self._left(directory, parts[-1])
        self._tell(parts)

    def set_modified(self, parts: Parts, modified_ns: int) -> None:
        """Set a name's modification time, a link's own if it is one, in nanoseconds.

        Raises:
            OSError: ``EACCES`` for hidden and locked names.
        """
        self._check_mutable(parts)
        with self._parent(parts) as directory:
            status = self._look_at(directory, parts)
            self._check_draft(parts, status, directory, parts[-1])
            self.claim(parts, status)
            os.utime(parts[-1], ns=(modified_ns, modified_ns), dir_fd=directory, follow_symlinks=False)
            self._left(directory, parts[-1])
        self._tell(parts)

    def remove(self, parts: Parts) -> None:
        """Remove a name that is no directory."""
        self._check_mutable(parts)
        self._check_replaceable(parts)
        with self._parent(parts) as directory:
            gone = self._look_at(directory, parts)
            self._check_draft(parts, gone, directory, parts[-1])
            self._check_own(parts, gone, directory, parts[-1])
            self._keep(parts, gone)
            self._names_changed += 1
            dying = self._dying(gone, directory, parts[-1])
            with self._followed(directory, parts[-1], gone, -1, parts):
                os.unlink(parts[-1], dir_fd=directory)
        self._own.dead(dying)
        self._own.gone(parts)
        self._quota.remove_file(gone)
        self._tell(parts)

    def mkdir(self, parts: Parts, mode: int) -> None:
        """Create a directory with exactly the permission bits of ``mode``, whatever this process's umask.

        Raises:
            OSError: ``EDQUOT``, ``EEXIST`` and others.
        """
        self._check_mutable(parts, directory=True, new=True)
        if not self._rules.may_be_directory(parts):
            self._check_unchecked(parts)
            if not self._private and self._rules.draft(parts):
                raise self._denied(parts, UNCHECKED)
        self._check_depth(parts, directory=True)
        with self._parent(parts) as directory:
            self._check_place(directory, parts)
            allowed = readable_directory(mode & PERMISSION_BITS)
            self._create(directory, parts[-1], lambda: os.mkdir(parts[-1], allowed, dir_fd=directory))
            if allowed & self._umask:
                self._set_mode(directory, parts, allowed)
            self._made(directory, parts)
            self._left(directory, parts[-1], made=True)
        self._tell(parts)

    def rmdir(self, parts: Parts) -> None:
        """Remove an empty directory."""
        self._check_mutable(parts, directory=True)
        self._check_replaceable(parts)
        with self._parent(parts) as directory:
            status = self._look_at(directory, parts)
            self._check_draft(parts, status, directory, parts[-1])
            self._check_own(parts, status, directory, parts[-1])
            dying = self._dying(status, directory, parts[-1])
            os.rmdir(parts[-1], dir_fd=directory)
            self._own.dead(dying)
            if self._keeper is not None:
                self._keeper.before_directory(parts, status)
        self._own.gone(parts)
        self._quota.remove_file()
        self._tell(parts)

    def symlink(self, target: bytes, parts: Parts) -> None:
        """Create a link.

        Raises:
            OSError: ``EACCES`` for a target that could leave the view, where no link may be, under a hidden name, since
                the next lease would hide what it leads to, and for a link in place of a directory that has rules
                anchored below it, since what it leads to would get those names without their rules.
        """
        self._check_mutable(parts, new=True)
        stays = self._any_link or link_stays(len(parts) - 1, target)
        if not stays or self._rules.guards_below(parts) or self._rules.bars_links(parts):
            raise self._denied(parts, LEADS_OUT)
        if self._rules.hidden(parts):
            raise self._denied(parts, HIDES)
        with self._parent(parts) as directory:
            self._check_place(directory, parts)
            self._create(directory, parts[-1], lambda: os.symlink(target, parts[-1], dir_fd=directory))
            self._made(directory, parts)
            self._left(directory, parts[-1], made=True)
        self._tell(parts)

    def _open_or_create(self, parts: Parts, access: int, mode: int, *, exclusive: bool) -> tuple[int, bool]:
        name, flags = parts[-1], access | OPEN_FILE
        with self._parent(parts) as directory:
            for _ in range(_MAX_CREATE_RACES):  # somebody on the host may create or remove the name meanwhile
                self._check_place(directory, parts)
                try:
                    if not exclusive:
                        self.check_regular(self._look_at(directory, parts))
                        return self._adopt(os.open(name, flags, dir_fd=directory), parts), False
                except FileNotFoundError:
                    self._check_free(directory, parts)
                self._charge_name(directory, name)
                try:
                    allowed = readable_file(mode & PERMISSION_BITS)
                    fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, allowed, dir_fd=directory)
                except OSError as exc:
                    self._quota.remove_file()
                    if exclusive or exc.errno != errno.EEXIST:
                        raise
                else:
                    self._made(directory, parts)
                    self._adopt(fd, parts, made=True)
                    if allowed & self._umask:
                        os.fchmod(fd, allowed)
                    self._left(directory, name, made=True)
                    return fd, True
        raise refused(errno.EAGAIN)

    def _check_free(self, directory: int, parts: Parts) -> None:
        """Refuse to make what is there already and not shown."""
        if self._hides and is_shared_at(directory, parts[-1]):
            raise self._denied(parts, SHARED)

    def _set_mode(self, directory: int, parts: Parts, mode: int) -> None:
        # chmod by name would follow a link; through the descriptor it acts on exactly what was looked at
        fd = os.open(parts[-1], os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            status = os.fstat(fd)
            if stat.S_ISLNK(status.st_mode):
                raise refused(errno.EOPNOTSUPP)
            self.check_mode(parts, status, mode)
            os.chmod(f"/proc/self/fd/{fd}", mode & PERMISSION_BITS)
        finally:
            os.close(fd)
