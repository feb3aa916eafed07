"""Changing what lies beneath one directory descriptor: the read-write half of the confined file system (DESIGN 4.6)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from sublet.workspace.confined.file import PERMISSION_BITS, OnChange, WriteFile
from sublet.workspace.confined.fs import OPEN_FILE, ConfinedFs, ReadFile
from sublet.workspace.confined.move import check_move
from sublet.workspace.git.take import QUICK_BYTES, Looking, looking, take
from sublet.workspace.model import ViewRules
from sublet.workspace.openat2 import Opener, rename_noreplace
from sublet.workspace.quota import Quota
from sublet.workspace.viewpath import Parts, link_stays, refused

_MAX_CREATE_RACES: Final = 8


class WritableFs(ConfinedFs):
    """What can be read and changed below one directory.

    Args:
        root_fd: descriptor of the root, which this object owns from now on.
        rules: names that are hidden or locked.
        quota: counters of what is added.
        on_change: called with each path that was written, created, removed or renamed.
        opener: how directories are opened beneath the root; the kernel's best by default.
        any_link: whether links may point anywhere: for a private copy whose own links nobody of ours follows.
        on_marks: called with the files that an index had git not look at, where that was not taken over.
    """

    read_only = False

    def __init__(
        self,
        root_fd: int,
        rules: ViewRules,
        quota: Quota,
        on_change: OnChange,
        opener: Opener | None = None,
        *,
        any_link: bool = False,
        on_marks: Callable[[Sequence[bytes]], None] = lambda _: None,
    ) -> None:
        super().__init__(root_fd, rules, quota, opener)
        self._on_marks = on_marks
        self._tell = on_change
        self._any_link = any_link

    def twin(self) -> WritableFs:
        """Return the same tree once more, with a descriptor of its own that outlives this object's.

        Raises:
            OSError: as ``reopen``.
        """
        return WritableFs(
            self.reopen(),
            self._rules,
            self._quota,
            self._tell,
            self._open_beneath,
            any_link=self._any_link,
            on_marks=self._on_marks,
        )

    def open_read(self, parts: Parts) -> ReadFile:
        """Open a regular file for reading; its mode and times can be set through it, too, unless it is locked.

        Raises:
            OSError: as ``ConfinedFs.open_read``.
        """
        if self._rules.locked(parts) or self._rules.kept(parts):
            return super().open_read(parts)
        self._check_visible(parts)
        return WriteFile(self, self._open_regular(parts, os.O_RDONLY), parts, self._quota, self._tell, append=False)

    def open_write(self, parts: Parts, flags: int, mode: int) -> WriteFile:
        """Open a regular file for writing.

        Args:
            parts: the file.
            flags: ``O_WRONLY`` or ``O_RDWR`` with any of ``O_APPEND``, ``O_CREAT``, ``O_TRUNC``, ``O_EXCL``.
            mode: permission bits of a file that is created.

        Raises:
            OSError: ``EDQUOT``, ``EACCES`` for hidden, locked and special names, and as ``open(2)``.
        """
        self._check_mutable(parts)
        self._check_unchecked(parts)
        if not flags & os.O_EXCL:
            self._check_replaceable(parts)
        access = flags & (os.O_WRONLY | os.O_RDWR | os.O_APPEND)
        if flags & os.O_CREAT:
            fd, created = self._open_or_create(parts, access, mode, exclusive=bool(flags & os.O_EXCL))
        else:
            fd, created = self._open_regular(parts, access), False
        file = WriteFile(self, fd, parts, self._quota, self._tell, append=bool(flags & os.O_APPEND))
        if created:
            self._tell(parts)
        elif flags & os.O_TRUNC:
            try:
                file.truncate(0)
            except OSError:
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
        that unpacking an archive as root works. So are all changes of the root itself, which is the lender's.

        Raises:
            OSError: ``EACCES`` for hidden and locked names, ``EOPNOTSUPP`` for the mode of a link.
        """
        if not parts and size is None:
            return
        if follow and parts and stat.S_ISLNK(self.lstat(parts).st_mode):
            parts = self.resolve(parts)
        self._check_mutable(parts, directory=True)
        if mode is not None:
            self._check_replaceable(parts)
        if self._rules.directory_only(parts):
            self.lstat(parts)
        if size is not None:
            file = self.open_write(parts, os.O_WRONLY, 0)
            try:
                file.truncate(size)
            finally:
                file.close()
        with self._parent(parts) as directory:
            if mode is not None:
                self._set_mode(directory, parts[-1], mode)
            if times is not None:
                os.utime(parts[-1], times=times, dir_fd=directory, follow_symlinks=False)
            if size is None and mode is None and times is None:
                os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
                return
        self._tell(parts)

    def set_modified(self, parts: Parts, modified_ns: int) -> None:
        """Set a name's modification time, a link's own if it is one, in nanoseconds.

        Raises:
            OSError: ``EACCES`` for hidden and locked names.
        """
        self._check_mutable(parts)
        with self._parent(parts) as directory:
            os.utime(parts[-1], ns=(modified_ns, modified_ns), dir_fd=directory, follow_symlinks=False)
        self._tell(parts)

    def remove(self, parts: Parts) -> None:
        """Remove a name that is no directory."""
        self._check_mutable(parts)
        self._check_replaceable(parts)
        with self._parent(parts) as directory:
            gone = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
            os.unlink(parts[-1], dir_fd=directory)
        self._quota.remove_file(gone)
        self._tell(parts)

    def mkdir(self, parts: Parts, mode: int) -> None:
        """Create a directory.

        Raises:
            OSError: ``EDQUOT``, ``EEXIST`` and others.
        """
        self._check_mutable(parts, directory=True)
        if not self._rules.may_be_directory(parts):
            self._check_unchecked(parts)
        with self._parent(parts) as directory:
            self._create(directory, parts[-1], lambda: os.mkdir(parts[-1], mode & PERMISSION_BITS, dir_fd=directory))
        self._tell(parts)

    def rmdir(self, parts: Parts) -> None:
        """Remove an empty directory."""
        self._check_mutable(parts, directory=True)
        self._check_replaceable(parts)
        with self._parent(parts) as directory:
            os.rmdir(parts[-1], dir_fd=directory)
        self._quota.remove_file()
        self._tell(parts)

    def symlink(self, target: bytes, parts: Parts) -> None:
        """Create a link.

        Raises:
            OSError: ``EACCES`` for a target that could leave the view, where no link may be, and for a link in place of
                a directory that has rules anchored below it, since what it leads to would get those names without
                their rules.
        """
        self._check_mutable(parts)
        stays = self._any_link or link_stays(len(parts) - 1, target)
        if not stays or self._rules.guards_below(parts) or self._rules.bars_links(parts):
            raise refused(errno.EACCES)
        with self._parent(parts) as directory:
            self._create(directory, parts[-1], lambda: os.symlink(target, parts[-1], dir_fd=directory))
        self._tell(parts)

    def look(self, old: Parts, new: Parts) -> Looking | None:
        """Return what has to look at ``old``, in any thread, before ``link`` or ``rename`` can make it ``new``.

        None where nothing has to be looked at, or where that is done at once.

        Raises:
            OSError: as these.
        """
        if not self._rules.checked(new):
            return None
        self._check_mutable(old)
        self._check_mutable(new)
        with self._parent(old) as old_dir, self._parent(new) as new_dir:
            size = os.stat(old[-1], dir_fd=old_dir, follow_symlinks=False).st_size
            with suppress(FileNotFoundError):  # of an index, the one that is replaced is looked at as well
                size = max(size, os.stat(new[-1], dir_fd=new_dir, follow_symlinks=False).st_size)
            if size <= QUICK_BYTES:
                return None
            return looking(old_dir, old[-1], new_dir, new, self._rules)

    def link(self, old: Parts, new: Parts, looked: Looking | None = None) -> None:
        """Give a regular file a second name; ``looked`` is what has looked at it, where ``look`` returned one.

        Raises:
            OSError: ``EACCES`` for hidden and locked names on either side, and for what is no regular file.
        """
        self._check_mutable(old)
        self._check_replaceable(old)
        self._check_mutable(new)
        self._check_unchecked(old)
        if self._rules.kept(new) and not self._rules.checked(new):
            raise refused(errno.EACCES)
        with self._parent(old) as old_dir, self._parent(new) as new_dir:
            self.check_regular(os.stat(old[-1], dir_fd=old_dir, follow_symlinks=False))
            if self._rules.checked(new):
                taking = partial(self._take, old_dir, old[-1], new_dir, new, looked, replace=False)
                self._create(new_dir, new[-1], taking)
            else:
                names = {"src_dir_fd": old_dir, "dst_dir_fd": new_dir}
                self._create(new_dir, new[-1], lambda: os.link(old[-1], new[-1], follow_symlinks=False, **names))
        self._tell(new)

    def rename(self, old: Parts, new: Parts, looked: Looking | None = None, *, replace: bool) -> None:
        """Rename a file, link or directory; ``looked`` is what has looked at it, where ``look`` returned one.

        Raises:
            OSError: ``EACCES`` for hidden and locked names and directories above rules or mounts, and for a link that
                would leave the view from its new place; ``EXDEV`` for a directory that holds such a link, is too
                large to tell, or would come under other rules, so that the client copies instead; ``EEXIST`` unless
                ``replace``.
        """
        self._check_replaceable(old)
        for parts in (old, new):
            self._check_mutable(parts, directory=True)
            if self._rules.guards_below(parts) or self._mounts.lie_below(parts):
                raise refused(errno.EACCES)
        with self._parent(old) as old_dir, self._parent(new) as new_dir:
            check_move(self._rules, self._open_beneath, old_dir, old, new)
            if self._rules.checked(new):
                source = os.stat(old[-1], dir_fd=old_dir, follow_symlinks=False)
                self._take(old_dir, old[-1], new_dir, new, looked, replace=replace and not self._rules.kept(new))
                os.unlink(old[-1], dir_fd=old_dir)
                self._quota.remove_file(source)
                self._quota.files += 1  # one name has become another
            elif self._rules.kept(new):
                raise refused(errno.EACCES)  # a directory of objects that nobody has looked at
            elif replace:
                self._replace(old_dir, old[-1], new_dir, new[-1])
            else:
                rename_noreplace(old_dir, old[-1], new_dir, new[-1])
        self._tell(old)
        self._tell(new)

    def _check_mutable(self, parts: Parts, *, directory: bool = False) -> None:
        rules = self._rules
        if not parts or rules.hidden(parts) or rules.locked(parts) or self._mounts.covers(parts):
            raise refused(errno.EACCES)
        if not directory and rules.directory_only(parts):
            raise refused(errno.EACCES)

    def _check_replaceable(self, parts: Parts) -> None:
        if self._rules.kept(parts):
            raise refused(errno.EACCES)

    def _check_unchecked(self, parts: Parts) -> None:
        """Refuse what would make or change an index or object without its being looked at."""
        if self._rules.checked(parts):
            raise refused(errno.EACCES)

    def _open_or_create(self, parts: Parts, access: int, mode: int, *, exclusive: bool) -> tuple[int, bool]:
        name, flags = parts[-1], access | OPEN_FILE
        with self._parent(parts) as directory:
            for _ in range(_MAX_CREATE_RACES):  # somebody on the host may create or remove the name meanwhile
                try:
                    if not exclusive:
                        self.check_regular(os.stat(name, dir_fd=directory, follow_symlinks=False))
                        return self._adopt(os.open(name, flags, dir_fd=directory)), False
                except FileNotFoundError:
                    pass
                self._charge_name(directory, name)
                try:
                    fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, mode & PERMISSION_BITS, dir_fd=directory)
                except OSError as exc:
                    self._quota.remove_file()
                    if exclusive or exc.errno != errno.EEXIST:
                        raise
                else:
                    return self._adopt(fd), True
        raise refused(errno.EAGAIN)

    def _charge_name(self, directory: int, name: bytes) -> None:
        """Charge a name that is about to be made; one that is there already fails for that, and not for the quota.

        Raises:
            OSError: ``EEXIST`` or ``EDQUOT``.
        """
        if self._quota.is_full_of_files:
            with suppress(FileNotFoundError):
                os.stat(name, dir_fd=directory, follow_symlinks=False)
                raise refused(errno.EEXIST)
        self._quota.add_file()

    def _create(self, directory: int, name: bytes, action: Callable[[], None]) -> None:
        self._charge_name(directory, name)
        try:
            action()
        except OSError:
            self._quota.remove_file()
            raise

    def _set_mode(self, directory: int, name: bytes, mode: int) -> None:
        # chmod by name would follow a link; through the descriptor it acts on exactly what was looked at
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise refused(errno.EOPNOTSUPP)
            os.chmod(f"/proc/self/fd/{fd}", mode & PERMISSION_BITS)
        finally:
            os.close(fd)

    def _take(
        self, old_dir: int, old: bytes, new_dir: int, new: Parts, looked: Looking | None, *, replace: bool
    ) -> None:
        """Put a copy of a file in the repository once it was looked at; the caller charges the name.

        Raises:
            OSError: ``EDQUOT`` where there is no room for both, and as ``take``.
        """
        replaced = None
        with suppress(FileNotFoundError):
            replaced = os.stat(new[-1], dir_fd=new_dir, follow_symlinks=False)
        size = os.stat(old, dir_fd=old_dir, follow_symlinks=False).st_size
        self._quota.resize(0, size)
        try:
            if looked is None:
                looked = looking(old_dir, old, new_dir, new, self._rules)
                looked.look()
            taken = take(old_dir, old, new_dir, looked, replace=replace)
        except OSError:
            self._quota.bytes -= size
            raise
        if looked.cleared:
            self._on_marks(looked.cleared)
        self._quota.bytes -= size - taken.st_size
        if replaced is not None:
            self._quota.remove_file(replaced)

    def _replace(self, old_dir: int, old: bytes, new_dir: int, new: bytes) -> None:
        try:
            replaced = os.stat(new, dir_fd=new_dir, follow_symlinks=False)
        except FileNotFoundError:
            replaced = None
        source = os.stat(old, dir_fd=old_dir, follow_symlinks=False)
        os.rename(old, new, src_dir_fd=old_dir, dst_dir_fd=new_dir)
        # two names of one file: rename(2) then does nothing and both stay
        if replaced is not None and not os.path.samestat(source, replaced):
            self._quota.remove_file(replaced)
