"""The contents that one directory of a lease keeps: whole copies, and blocks of large files.

A copy shares its blocks where the file system can. Where it can't, a large file of which only a part is about to be
changed has the blocks of that part kept. What takes long is done in a thread, one at a time, by ``NotKnownYet``; what
is quick is done at once, unless a thread is at work.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from sublet.disk.private_dir import PrivateDir
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.file_copy import copy_content, share_content
from sublet.workspace.kept import blocks as block_file
from sublet.workspace.kept.blocks import BLOCK_BYTES, SUFFIX, ZERO_CHARGE, Blocks, Mark, Span
from sublet.workspace.kept.budget import KeptBudget
from sublet.workspace.kept.signature import Signature
from sublet.workspace.viewpath import refused

QUICK_BYTES: Final = 1 << 20
"""Bytes that are copied where everybody waits; more are copied in a thread. A file of no more is kept whole."""
MAX_TRIES: Final = 3
"""How often a large file is copied that somebody else is writing meanwhile."""
MAX_OPEN_BLOCKS: Final = 2_000
"""Files of which only blocks are kept, and more may follow; a further one is kept whole."""
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Reading = Callable[[], int]
"""Opens the file for reading; the descriptor becomes the caller's."""


@dataclass(frozen=True, slots=True)
class _LaterCopy:
    """A copy that was made in a thread, of the file in this state; ``number`` is -1 where that failed."""

    signature: Signature
    number: int
    tries: int


class KeptContents:
    """The files in one directory that keep contents.

    Args:
        directory: keeps them; it belongs to this object from now on.
        budget: shared by the directories of the lease.
        blocks: those that an earlier process has begun.
    """

    def __init__(self, directory: PrivateDir, budget: KeptBudget, blocks: Iterable[Blocks] = ()) -> None:
        self._directory = directory
        self._budget = budget
        self._device = os.fstat(directory.fileno()).st_dev
        self._numbers = itertools.count(1 + _highest(directory))
        self._working = threading.Lock()
        self._copies: dict[int, _LaterCopy] = {}
        """Copies that were made in a thread, by inode."""
        self._blocks = {one.mark.inode: one for one in blocks if one.mark is not None}
        self._shares = True
        self._closed = False

    def blocks(self, inode: int) -> Blocks | None:
        """Return what is kept of a file of which only blocks are kept, and more may follow."""
        return self._blocks.get(inode)

    def may_share(self, status: os.stat_result) -> bool:
        """Tell whether a copy of a file may share its blocks; it is tried once."""
        return self._shares and status.st_dev == self._device and self._budget.has_room(status.st_size)

    def may_keep_blocks(self) -> bool:
        """Tell whether one more file may have only blocks kept."""
        return len(self._blocks) < MAX_OPEN_BLOCKS

    def copy(
        self, status: os.stat_result, signature: Signature, reading: Reading, *, patient: bool, shared: bool
    ) -> int:
        """Return the number of a copy of a file; ``shared`` makes none that does not share its blocks.

        Raises:
            OSError: it can't be copied, or there is no room; ``EOPNOTSUPP`` where no blocks can be shared.
            NotKnownYet: that takes long.
        """
        made = self._copies.pop(status.st_ino, None)
        if made is not None and (made.signature == signature or made.tries >= MAX_TRIES):
            if made.number < 0:
                raise refused(errno.ENOSPC)
            return made.number  # where somebody writes it all the time, one of its states is as good as another
        if made is not None:
            self._discard_copy(made)
        tries = 1 if made is None else made.tries + 1
        self._budget.check(signature.size, self._directory.fileno())
        source = _opened(reading, status)
        try:
            if patient or signature.size <= QUICK_BYTES:
                number = self._copy(source, signature.size, shared=shared)
                os.close(source)
                return number
        except BaseException:
            os.close(source)
            raise
        raise NotKnownYet(
            partial(self._copy_later, source, status.st_ino, tries, shared=shared), partial(os.close, source)
        )

    def discard(self, number: int, size: int) -> None:
        """Remove a copy of ``size`` bytes that nobody wants."""
        self._budget.give(size)
        with suppress(OSError):
            os.unlink(str(number), dir_fd=self._directory.fileno())

    def begin(self, status: os.stat_result, path: bytes) -> Blocks:
        """Begin to keep blocks of a file, none at first; ``path`` is the name under which it is listed.

        Raises:
            OSError: they can't be kept.
        """
        if (old := self._blocks.get(status.st_ino)) is not None:
            self.drop(old)
        mark = Mark(status.st_ino, Signature.of(status))
        self._budget.check(0, self._directory.fileno())
        blocks = block_file.begin(self._directory.fileno(), next(self._numbers), status.st_size, mark)
        blocks.path = path
        self._blocks[status.st_ino] = blocks
        return blocks

    def keep(self, blocks: Blocks, span: Span, status: os.stat_result, reading: Reading, *, patient: bool) -> bool:
        """Keep the blocks that a change of ``span`` overwrites; False where they can't be kept.

        Args:
            blocks: those of the file, which is as the lease left it.
            span: the bytes that are about to be changed.
            status: the file's.
            reading: opens it.
            patient: whether many are kept at once.

        Raises:
            NotKnownYet: that takes long.
        """
        blocks.verified = len(blocks.kept)
        if blocks.count(span) * ZERO_CHARGE > self._budget.limit:
            return False
        missing = blocks.missing(span)
        if not missing:
            return True
        if blocks.failed:
            blocks.failed = False
            return False
        try:
            source = _opened(reading, status)
        except OSError:
            return False
        quick = patient or len(missing) * BLOCK_BYTES <= QUICK_BYTES
        if not quick or not self._working.acquire(blocking=patient):
            raise NotKnownYet(partial(self._add_later, source, blocks, missing), partial(os.close, source))
        try:
            self._add(blocks, source, missing)
            blocks.verified = len(blocks.kept)
        except OSError:
            return False
        finally:
            self._working.release()
            os.close(source)
        return True

    def sign(self, inode: int, signature: Signature) -> None:
        """Note how the lease leaves a file, where blocks of it are kept."""
        if (blocks := self._blocks.get(inode)) is not None:
            block_file.sign(self._directory.fileno(), blocks, Mark(inode, signature))

    def moved(self, inode: int, status: os.stat_result) -> None:
        """Note that a file has become another one with the same content."""
        if (blocks := self._blocks.pop(inode, None)) is not None:
            self._blocks[status.st_ino] = blocks
            self.sign(status.st_ino, Signature.of(status))

    def finish(self, blocks: Blocks) -> None:
        """Keep blocks as they are: all are there."""
        self._forget(blocks)

    def drop(self, blocks: Blocks) -> None:
        """Remove blocks that can't become whole, or that nobody wants."""
        self._forget(blocks)
        blocks.dropped = True
        self._remove(blocks)

    def close(self) -> None:
        """Let go of the directory, unless a thread is at work in it, which does so when it is done. Idempotent."""
        self._closed = True
        self._let_go()

    def _forget(self, blocks: Blocks) -> None:
        for inode in [inode for inode, one in self._blocks.items() if one is blocks]:
            del self._blocks[inode]

    def _remove(self, blocks: Blocks) -> None:
        """Remove dropped blocks, unless a thread is at work, which then does so."""
        if not self._working.acquire(blocking=False):
            return
        try:
            self._budget.give(blocks.charged)
            blocks.charged = 0
            with suppress(OSError):
                os.unlink(blocks.name, dir_fd=self._directory.fileno())
        finally:
            self._working.release()

    def _let_go(self) -> None:
        if not self._working.acquire(blocking=False):
            return
        try:
            while self._copies:
                self._discard_copy(self._copies.popitem()[1])
            self._directory.close()
        finally:
            self._working.release()

    def _copy_later(self, source: int, inode: int, tries: int, *, shared: bool) -> None:
        try:
            with self._working:
                signature = Signature.of(os.fstat(source))
                known = self._copies.get(inode)
                if self._closed or (known is not None and known.signature == signature):
                    return
                try:
                    self._budget.check(signature.size, self._directory.fileno())
                    number = self._copy(source, signature.size, shared=shared)
                except OSError:
                    number = -1
                if number >= 0 or not shared:  # what can't be shared is kept in blocks
                    self._copies[inode] = _LaterCopy(signature, number, tries)
        finally:
            os.close(source)
            if self._closed:
                self._let_go()

    def _add_later(self, source: int, blocks: Blocks, missing: Sequence[int]) -> None:
        try:
            with self._working:
                try:
                    self._add(blocks, source, missing)
                except OSError:
                    blocks.failed = True
        finally:
            os.close(source)
            if blocks.dropped and not self._closed:
                self._remove(blocks)
            if self._closed:
                self._let_go()

    def _add(self, blocks: Blocks, source: int, missing: Sequence[int]) -> None:
        """Keep the blocks of ``missing`` that are still missing, as long as somebody wants them.

        Raises:
            OSError: one can't be kept.
        """
        for index in missing:
            if self._closed or blocks.dropped:
                return
            if index in blocks.kept:
                continue
            directory = self._directory.fileno()
            self._budget.check(block_file.charge(blocks.bytes_of(index)), directory)
            before = blocks.charged
            block_file.add(directory, blocks, source, index)
            self._budget.take(blocks.charged - before)

    def _discard_copy(self, copy: _LaterCopy) -> None:
        if copy.number >= 0:
            self.discard(copy.number, copy.signature.size)

    def _copy(self, source: int, size: int, *, shared: bool) -> int:
        """Copy a file and return the number of the copy.

        Raises:
            OSError: there is no room; it shares no blocks, and has to.
        """
        number = next(self._numbers)
        target = os.open(str(number), _CREATE, 0o600, dir_fd=self._directory.fileno())
        try:
            if not shared:
                copy_content(source, target, size)
            elif not share_content(source, target, size):
                self._shares = False
                raise refused(errno.EOPNOTSUPP)
        except BaseException:
            with suppress(OSError):
                os.unlink(str(number), dir_fd=self._directory.fileno())
            raise
        finally:
            os.close(target)
        self._budget.take(size)
        return number


def _opened(reading: Reading, status: os.stat_result) -> int:
    """Open a file for reading.

    Raises:
        OSError: it can't be opened; ``ESTALE`` where it is another file now.
    """
    source = reading()
    if not os.path.samestat(os.fstat(source), status):
        os.close(source)
        raise refused(errno.ESTALE)
    return source


def _highest(directory: PrivateDir) -> int:
    """Return the highest number that is taken, whether the list has it or not."""
    fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory.fileno())
    try:
        names = (name.removesuffix(SUFFIX) for name in os.listdir(fd))
        return max((int(name) for name in names if name.isdecimal()), default=-1)
    finally:
        os.close(fd)
