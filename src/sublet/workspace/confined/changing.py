"""What comes before every change beneath one directory descriptor: may it be, and whose file would it be (DESIGN 4.6)?

Rules: a name that is hidden or locked is never changed. A file that has names outside the view is copied first, so that
only the lease's name changes. What the lease has not written last is kept before it is overwritten.

Weak: somebody else who writes to the directory may act between a check and the change; what he did is then told of in
the report, and not prevented.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from sublet.disk.openat2 import Opener
from sublet.workspace.birth import Identity
from sublet.workspace.confined.bounds import check_depth, check_readable
from sublet.workspace.confined.copy_up import QUICK_BYTES, Copy, copy_link
from sublet.workspace.confined.file import OnChange, WriteFile, process_umask
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.handles import OPEN_FILE
from sublet.workspace.confined.held import HeldBelow
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.confined.names import held_name, is_there
from sublet.workspace.confined.shared import is_shared
from sublet.workspace.export import ViewRules
from sublet.workspace.kept.blocks import ALL, NOTHING, Span
from sublet.workspace.kept.keeper import OverwriteKeeper
from sublet.workspace.own_names import OwnNames
from sublet.workspace.quota import Quota
from sublet.workspace.viewpath import Parts, refused

MAX_COPIES: Final = 2
"""Copies of files that wait for the change that they were made for."""

LOCKED: Final = "your tools run or obey what has this name, so that no lease changes it"
READ_ONLY: Final = "only other names of this directory are lent for writing"
NOT_MADE: Final = "this lease removes, renames and replaces nothing that it has not made itself"
HIDDEN: Final = "the name is hidden, and something of the lender's is there"
LEFT_OUT: Final = "the name was left out of what is lent"
FULL: Final = "this lease has made as many names that are hidden by default as it may"
HOLDS: Final = "the directory holds names of the lender's that are hidden or locked, which are moved by nobody"
SHARED: Final = "the file has a further name, which is hidden"
DRAFT: Final = "your own git is writing it, so that nobody else changes it"
SHUT: Final = "with these permissions nobody could look at it at the end of the lease"
DEEP: Final = "the name lies deeper than what is looked at at the end of a lease"
MOUNTED: Final = "something else is mounted there"
LEADS_OUT: Final = "the link would lead out of what is lent, or around the rules of names below it"
HIDES: Final = "a link of this name would have what it leads to hidden from later leases"
UNCHECKED: Final = "it is not what git would have there, or it brings names that are hidden or locked"
NOT_KEPT: Final = "what it holds can't be kept, and this lease must keep all that it overwrites"

OnRefused = Callable[[Parts, str], None]
_CopyKey = tuple[int, int, bytes, int, int, int, int]
"""Device and inode of the directory, name, then inode, modification and change time of the file, and bytes to keep."""


class ChangingFs(ConfinedFs):
    """The checks and the bookkeeping of ``WritableFs``.

    Args:
        root_fd: descriptor of the root, which this object owns from now on.
        rules: names that are hidden or locked.
        quota: counters of what is added.
        on_change: called with each path that was written, created, removed or renamed.
        opener: how directories are opened beneath the root; the kernel's best by default.
        own: what the lease made itself under names that rules hide.
        private: whether this is a view that nobody else has, so that no file in it has a name anywhere else.
        patient: whether what takes long to find out is found out at once; else ``NotKnownYet`` asks to come again.
        on_refused: called with each path whose change was refused for a rule, and the reason.
        keeper: keeps what is overwritten; None where nothing is, as in a private view.
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
    ) -> None:
        super().__init__(root_fd, rules, quota, opener, own=own, private=private, patient=patient)
        self._on_change = on_change
        self._on_refused = on_refused
        self._keeper = keeper
        self._umask = process_umask()
        self._only_adds = rules.only_adds()
        self._held = HeldBelow(rules, self.is_own, self._shared if self._hides else None)
        self._names_changed = 0
        self._open_files: set[WriteFile] = set()
        self._copies: OrderedDict[_CopyKey, Copy] = OrderedDict()

    def close(self) -> None:
        """Close the root; every later operation fails."""
        super().close()
        if self._keeper is not None:
            self._keeper.close()
        while self._copies:
            self._copies.popitem()[1].discard()

    def claim(
        self, parts: Parts, status: os.stat_result, keep: int | None = None, fd: int = -1, span: Span = NOTHING
    ) -> None:
        """``Changing.claim``."""
        if self._private or stat.S_ISDIR(status.st_mode) or status.st_nlink == 0:
            return
        if is_shared(status):
            try:
                self.check_shown(status, parts)
            except FileNotFoundError:
                raise self._denied(parts, SHARED) from None
        self._keep(parts, status, fd, span)
        if not self._shared.stays_inside(status, parts, patient=self._patient):
            self._copy_up(parts, status, status.st_size if keep is None else min(keep, status.st_size))

    def knows(self, status: os.stat_result, span: Span) -> bool:
        """``Changing.knows``."""
        return self._keeper is None or self._keeper.knows(status, span)

    def writes(self, inode: int) -> None:
        """``Changing.writes``."""
        if self._keeper is not None:
            self._keeper.writes(inode)

    def wrote(self, fd: int) -> None:
        """``Changing.wrote``."""
        if self._keeper is not None:
            self._keeper.wrote(os.fstat(fd))

    def _keep(self, parts: Parts, status: os.stat_result, fd: int = -1, span: Span = ALL) -> None:
        """Keep what is about to be changed or removed, where it is not the lease's own; ``span`` are the bytes.

        Raises:
            OSError: as ``OverwriteKeeper.before``.
            NotKnownYet: as ``OverwriteKeeper.before``.
        """
        if self._keeper is None:
            return
        try:
            reading = partial(self._reading, parts, status, fd)
            self._keeper.before(parts, status, reading, patient=self._patient, span=span)
        except OSError:
            self._on_refused(tuple(parts), NOT_KEPT)
            raise

    def _reading(self, parts: Parts, status: os.stat_result, fd: int) -> int:
        """Open a file for reading, whatever a handle on it is open for, or a link to look at."""
        if fd >= 0:
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)  # which is known to be a regular file
        flags = OPEN_FILE | (os.O_PATH if stat.S_ISLNK(status.st_mode) else os.O_RDONLY)
        with self._parent(parts) as directory:
            return os.open(parts[-1], flags, dir_fd=directory)

    def _kept_followed(self, before: os.stat_result, after: os.stat_result, path: Parts) -> None:
        """Take note for the keeper of a change of names, which changes the file's times."""
        if self._keeper is not None:
            self._keeper.followed(before, after, b"/".join(path))

    def _left(self, directory: int, name: bytes, *, made: bool = False) -> None:
        """Take note for the keeper of how the lease left what has this name, and whether it has just ``made`` it."""
        if self._keeper is None:
            return
        with suppress(OSError):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if made:
                self._keeper.made(status)
            elif stat.S_ISDIR(status.st_mode):
                self._keeper.made_directory(status)
            else:
                self._keeper.settled(status)

    @property
    def names_changed(self) -> int:
        """``Changing.names_changed``."""
        return self._names_changed

    def closed(self, file: WriteFile) -> None:
        """``Changing.closed``."""
        self._open_files.discard(file)
        if self._keeper is not None and file.has_changed:
            with suppress(OSError):
                self._keeper.closed(file.stat().st_ino)

    def _file(self, fd: int, parts: Parts, *, append: bool) -> WriteFile:
        file = WriteFile(self, self, fd, parts, self._quota, self._tell, append=append)
        self._open_files.add(file)
        return file

    def _copy_up(self, parts: Parts, status: os.stat_result, keep: int) -> None:
        """Give the name a file of its own, and let the lease's open handles go on with that.

        Raises:
            OSError: as ``claim``.
            NotKnownYet: the copy has to be made first, which takes long.
        """
        name = parts[-1]
        with self._parent(parts) as directory, held_name(directory, name) as source:
            if not os.path.samestat(os.fstat(source), status):
                raise refused(errno.ESTALE)
            if stat.S_ISLNK(status.st_mode):
                copy_link(directory, name, status)
                self._left(directory, name, made=True)
                self._shared.changed(status, os.fstat(source), -1)
                return
            self._quota.resize(0, keep)
            try:
                self._copied(directory, name, status, keep).put(name, status)
            except BaseException:
                self._quota.bytes -= keep
                raise
            self._shared.changed(status, os.fstat(source), -1)
            for file in list(self._open_files):
                if tuple(file.parts) == tuple(parts) and os.path.samestat(file.stat(), status):
                    file.moved_to(directory, name)
            if self._keeper is not None:
                with suppress(OSError):
                    self._keeper.copied_up(status, os.stat(name, dir_fd=directory, follow_symlinks=False))
        self._tell(parts)

    def _copied(self, directory: int, name: bytes, status: os.stat_result, keep: int) -> Copy:
        # A copy is put in the place that it was made for: a file has other names, in other directories.
        place_of = os.fstat(directory)
        key = (place_of.st_dev, place_of.st_ino, name, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, keep)
        if (made := self._copies.pop(key, None)) is not None:
            return made
        if keep <= QUICK_BYTES or self._patient:
            return Copy(os.dup(directory), name, status, keep)
        place = os.dup(directory)

        def copy() -> None:
            made = Copy(place, name, status, keep)
            with suppress(KeyError):
                while len(self._copies) >= MAX_COPIES:
                    self._copies.popitem(last=False)[1].discard()
            self._copies[key] = made
            if self._root < 0:
                self.close()

        raise NotKnownYet(copy, partial(os.close, place))

    def _tell(self, parts: Parts) -> None:
        """Note that a path was changed, and tell it."""
        self._held.changed(parts)
        self._on_change(parts)

    def _denied(self, parts: Parts, reason: str, code: int = errno.EACCES) -> OSError:
        self._on_refused(tuple(parts), reason)
        return refused(code)

    def _check_mutable(self, parts: Parts, *, directory: bool = False, new: bool = False) -> None:
        """Refuse a change that the names alone forbid; ``new`` ones may be made under names that are secret."""
        rules = self._rules
        if not parts:
            raise refused(errno.EACCES)
        if self._mounts.covers(parts):
            raise self._denied(parts, MOUNTED)
        if rules.hidden(parts) and self._own.at(parts) is None and not (new and rules.secret(parts)):
            why = LEFT_OUT if rules.left_out(parts) else HIDDEN
            raise self._denied(parts, self._why_locked(parts) if why is HIDDEN and rules.locked(parts) else why)
        if rules.locked(parts):
            raise self._denied(parts, self._why_locked(parts))
        if not directory and rules.directory_only(parts):
            raise refused(errno.EACCES)
        self._check_depth(parts)

    def _why_locked(self, parts: Parts) -> str:
        return READ_ONLY if self._rules.read_only(parts) else LOCKED

    def _check_own(self, parts: Parts, status: os.stat_result, directory: int, name: bytes) -> None:
        """Refuse to remove, move or replace what the lease did not make, where it may do so to nothing else.

        Args:
            parts: the name.
            status: of what is there.
            directory: where the name is, open.
            name: the last of ``parts``.

        Raises:
            OSError: ``EACCES``.
        """
        if self._only_adds and not self._own.bore(self._identity(status, directory, name)):
            raise self._denied(parts, NOT_MADE)

    def _dying(self, status: os.stat_result, directory: int, name: bytes) -> Identity | None:
        """Return what is about to be removed by its last name, where that matters."""
        if not self._only_adds or (status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode)):
            return None
        return self._identity(status, directory, name)

    def _check_depth(self, parts: Parts, *, directory: bool = False) -> None:
        try:
            check_depth(parts, directory=directory)
        except OSError:
            raise self._denied(parts, DEEP, errno.ENAMETOOLONG) from None

    def check_mode(self, parts: Parts, status: os.stat_result, mode: int) -> None:
        """``Changing.check_mode``."""
        try:
            check_readable(status, mode)
        except OSError:
            raise self._denied(parts, SHUT) from None

    def _check_replaceable(self, parts: Parts) -> None:
        if self._rules.kept(parts):
            raise refused(errno.EACCES)

    def _check_unchecked(self, parts: Parts) -> None:
        """Refuse what would make or change an index or object without its being looked at."""
        if self._rules.checked(parts):
            raise refused(errno.EACCES)

    def _check_place(self, directory: int, parts: Parts) -> None:
        """Refuse to make a hidden name where the delegator has something, or in a hidden directory of the delegator's.

        Raises:
            OSError: ``EACCES``.
        """
        above = tuple(parts[:-1])
        if not self._rules.hidden(parts):
            if not self._private and self._rules.draft(parts):
                if self._rules.draft(above):
                    self._check_draft(above, os.fstat(directory), directory, b"")
                if not self._own.has_room(parts):
                    raise self._denied(parts, FULL)
            return
        if above and self._rules.hidden(above) and not self.is_own(above, os.fstat(directory), directory, b""):
            raise self._denied(parts, HIDDEN)
        if not self._own.has_room(parts):
            raise self._denied(parts, FULL)
        try:
            self._look_at(directory, parts)
            if self._own.at(parts) is None:
                raise self._denied(parts, HIDDEN)
        except FileNotFoundError:
            if is_there(directory, parts[-1]):
                raise self._denied(parts, HIDDEN) from None

    def _check_draft(self, parts: Parts, status: os.stat_result, directory: int, name: bytes) -> None:
        """Refuse to change what the delegator's own git is writing; what the lease made there is its own.

        Args:
            parts: the name.
            status: of what is there.
            directory: where the name is, open; or what is there itself, where ``name`` is empty.
            name: the last of ``parts``.

        Raises:
            OSError: ``EACCES``.
        """
        if not self._private and self._rules.draft(parts) and not self.is_own(parts, status, directory, name):
            raise self._denied(parts, DRAFT)

    def _made(self, directory: int, parts: Parts, *, born: bool = True) -> None:
        """Note whose a name is that was just made, and that what it is of was ``born`` with it."""
        if self._only_adds and born:
            status = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
            self._own.born(self._identity(status, directory, parts[-1]))
        if self._rules.hidden(parts) or (not self._private and self._rules.draft(parts)):
            status = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
            self._own.made(parts, self._identity(status, directory, parts[-1]))

    def _charge_name(self, directory: int, name: bytes) -> None:
        """Charge a name that is about to be made; one that is there already fails for that, and not for the quota.

        Raises:
            OSError: ``EEXIST`` or ``EDQUOT``.
        """
        if self._quota.is_full_of_files and is_there(directory, name):
            raise refused(errno.EEXIST)
        self._quota.add_file()

    def _create(self, directory: int, name: bytes, action: Callable[[], None]) -> None:
        self._charge_name(directory, name)
        try:
            action()
        except OSError:
            self._quota.remove_file()
            raise
