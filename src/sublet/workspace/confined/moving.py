"""Names that become others beneath one directory descriptor: renames, and second names of files (DESIGN 4.6)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from sublet.disk.openat2 import Opener, rename_noreplace
from sublet.workspace.confined.changing import (
    HIDDEN,
    HIDES,
    HOLDS,
    LEADS_OUT,
    SHARED,
    UNCHECKED,
    ChangingFs,
    OnRefused,
)
from sublet.workspace.confined.file import OnChange
from sublet.workspace.confined.held import check_below
from sublet.workspace.confined.move import check_move
from sublet.workspace.export import ViewRules
from sublet.workspace.git.take import QUICK_BYTES, Looking, looking, take
from sublet.workspace.kept.keeper import OverwriteKeeper
from sublet.workspace.own_names import OwnNames
from sublet.workspace.quota import Quota
from sublet.workspace.viewpath import Parts, refused


class MovingFs(ChangingFs):
    """The part of ``WritableFs`` that gives names to what is there; its arguments beside those of ``ChangingFs``:

    Args:
        any_link: whether links may point anywhere: for a private copy whose own links nobody of ours follows.
        on_marks: called with the files that an index had git not look at, where that was not taken over.
    """

    def __init__(
        self,
        root_fd: int,
        rules: ViewRules,
        quota: Quota,
        on_change: OnChange,
        opener: Opener | None = None,
        *,
        own: OwnNames | None = None,
        private: bool = False,
        patient: bool = True,
        on_refused: OnRefused = lambda *_: None,
        keeper: OverwriteKeeper | None = None,
        any_link: bool = False,
        on_marks: Callable[[Sequence[bytes]], None] = lambda _: None,
    ) -> None:
        super().__init__(
            root_fd,
            rules,
            quota,
            on_change,
            opener,
            own=own,
            private=private,
            patient=patient,
            on_refused=on_refused,
            keeper=keeper,
        )
        self._on_marks = on_marks
        self._any_link = any_link

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
        self._names_changed += 1
        if self._rules.kept(new) and not self._rules.checked(new):
            raise refused(errno.EACCES)
        for parts in (old, new):
            if self._rules.hidden(parts):  # also one of the lease's own: the next lease must not hide more for it
                raise self._denied(parts, HIDDEN)
        with self._parent(old) as old_dir, self._parent(new) as new_dir:
            source = self._look_at(old_dir, old)
            self.check_regular(source)
            self._check_draft(old, source, old_dir, old[-1])
            self._check_place(new_dir, new)
            if self._rules.checked(new):
                taking = partial(self._take, old_dir, old[-1], new_dir, new, looked, replace=False)
                self._create(new_dir, new[-1], taking)
            else:
                names = {"src_dir_fd": old_dir, "dst_dir_fd": new_dir}
                self._create(new_dir, new[-1], lambda: os.link(old[-1], new[-1], follow_symlinks=False, **names))
                linked = os.stat(new[-1], dir_fd=new_dir, follow_symlinks=False)
                self._made(new_dir, new, born=False)
                if os.path.samestat(linked, source):
                    self._shared.linked(source, linked, old, new)
                    self._kept_followed(source, linked, old)
        self._tell(new)

    def rename(self, old: Parts, new: Parts, looked: Looking | None = None, *, replace: bool) -> None:
        """Rename a file, link or directory; ``looked`` is what has looked at it, where ``look`` returned one.

        Raises:
            OSError: ``EACCES`` for hidden and locked names, directories that hold such names at any depth or lie above
                rules or mounts, and for a link that would leave the view from its new place or get a hidden name;
                ``EXDEV`` for a directory that holds such a link, is too large to tell, or would come under other
                rules, so that the client copies instead; ``EEXIST`` unless ``replace``.
            NotKnownYet: what the directory holds has to be found out first.
        """
        self._check_replaceable(old)
        self._check_mutable(old, directory=True)
        self._check_mutable(new, directory=True, new=True)
        self._names_changed += 1
        for parts in (old, new):
            if self._rules.guards_below(parts) or self._mounts.lie_below(parts):
                raise self._denied(parts, HOLDS)
        with self._parent(old) as old_dir, self._parent(new) as new_dir:
            source = self._look_at(old_dir, old)
            self._check_draft(old, source, old_dir, old[-1])
            self._check_own(old, source, old_dir, old[-1])
            if stat.S_ISLNK(source.st_mode) and self._rules.hidden(new):
                raise self._denied(new, HIDES)
            try:
                check_move(self._rules, old_dir, source, old, new)
            except PermissionError:
                raise self._denied(new, LEADS_OUT) from None
            if stat.S_ISDIR(source.st_mode):
                self._check_directory(old_dir, old, new)
            self._check_place(new_dir, new)
            with suppress(FileNotFoundError):
                self._check_replaced(new_dir, new)
                there = os.stat(new[-1], dir_fd=new_dir, follow_symlinks=False)
                self._check_draft(new, there, new_dir, new[-1])
                if replace:
                    self._check_own(new, there, new_dir, new[-1])
                    self._keep(new, there)
            if self._rules.checked(new):
                self._keep(old, source)
                self._take(old_dir, old[-1], new_dir, new, looked, replace=replace and not self._rules.kept(new))
                os.unlink(old[-1], dir_fd=old_dir)
                self._own.gone(old)
                self._quota.remove_file(source)
                self._quota.files += 1  # one name has become another
            elif self._rules.kept(new):
                raise refused(errno.EACCES)  # a directory of objects that nobody has looked at
            elif replace and (not self._rules.hidden(new) or self._own.at(new) is not None):
                self._replace(old_dir, old[-1], new_dir, new)
            else:
                rename_noreplace(old_dir, old[-1], new_dir, new[-1])
            self._renamed(source, new_dir, old, new)
        self._tell(old)
        self._tell(new)

    def _check_directory(self, old_dir: int, old: Parts, new: Parts) -> None:
        """Refuse to move a directory for what it holds, to a hidden name, or out of packages, where names are free."""
        if self._rules.hidden(new) or (self._rules.packed(old) and not self._rules.packed(new)):
            raise refused(errno.EXDEV)
        if not self._private and self._rules.draft(new):
            raise self._denied(new, UNCHECKED)
        try:
            check_below(self._held.below(old_dir, old, patient=self._patient), old, new)
        except PermissionError:
            raise self._denied(old, HOLDS) from None

    def _check_replaced(self, new_dir: int, new: Parts) -> None:
        try:
            self._look_at(new_dir, new)
        except FileNotFoundError:
            os.stat(new[-1], dir_fd=new_dir, follow_symlinks=False)
            raise self._denied(new, SHARED) from None

    def _renamed(self, source: os.stat_result, new_dir: int, old: Parts, new: Parts) -> None:
        """Take note of a rename: what is called otherwise now, and whose it is."""
        try:
            status = os.stat(new[-1], dir_fd=new_dir, follow_symlinks=False)
        except FileNotFoundError:
            return
        if not os.path.samestat(source, status) or tuple(old) == tuple(new):
            return
        if self._own:
            self._own.moved(old, new)
            if not stat.S_ISDIR(source.st_mode) and not self._rules.hidden(new):
                self._own.gone(new)
        if self._rules.hidden(new) or self._rules.draft(new):
            self._made(new_dir, new)
        self._kept_followed(source, status, old)
        if stat.S_ISDIR(source.st_mode):
            self._held.followed(source, status)
            self._shared.moved()
        elif source.st_nlink > 1:
            self._shared.changed(source, status, 0)
            self._shared.renamed(status, new)
        size = len(old)
        for file in self._open_files:
            if tuple(file.parts[:size]) == tuple(old):
                file.renamed((*new, *file.parts[size:]))

    @contextmanager
    def _followed(self, directory: int, name: bytes, status: os.stat_result, more: int, parts: Parts) -> Iterator[None]:
        """Keep in mind what is known of a file with several names over a change of its names."""
        if status.st_nlink < 2 or stat.S_ISDIR(status.st_mode):
            yield
            return
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            yield
            self._shared.changed(status, os.fstat(fd), more)
            self._kept_followed(status, os.fstat(fd), parts)
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
        except OSError as exc:
            self._quota.bytes -= size
            if exc.errno in (errno.EACCES, errno.EFBIG):
                raise self._denied(new, UNCHECKED, exc.errno) from None
            raise
        self._left(new_dir, new[-1], made=True)
        if looked.cleared:
            self._on_marks(looked.cleared)
        self._quota.bytes -= size - taken.st_size
        if replaced is not None:
            self._quota.remove_file(replaced)

    def _replace(self, old_dir: int, old: bytes, new_dir: int, path: Parts) -> None:
        new = path[-1]
        try:
            replaced = os.stat(new, dir_fd=new_dir, follow_symlinks=False)
        except FileNotFoundError:
            replaced = None
        source = os.stat(old, dir_fd=old_dir, follow_symlinks=False)
        if replaced is None:
            if self._only_adds:  # what the delegator makes there in this moment stays
                rename_noreplace(old_dir, old, new_dir, new)
            else:
                os.rename(old, new, src_dir_fd=old_dir, dst_dir_fd=new_dir)
            return
        dying = self._dying(replaced, new_dir, new)
        with self._followed(new_dir, new, replaced, -1, path):
            os.rename(old, new, src_dir_fd=old_dir, dst_dir_fd=new_dir)
        # two names of one file: rename(2) then does nothing and both stay
        if not os.path.samestat(source, replaced):
            self._quota.remove_file(replaced)
            self._own.dead(dying)
