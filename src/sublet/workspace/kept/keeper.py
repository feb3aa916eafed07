"""Keeps the state before, whenever a live lease is about to change what it did not write last (DESIGN 4.12).

Our server makes every change of a lease, so that it can look at each file first. A file that is as the snapshot before
the lease has it costs nothing. So does one that is as the lease itself left it. Anything else is kept, and said to be
another's edit where it came to be during the lease: whole, its blocks shared where the file system can; or, where a
part of a large file is changed and it can't, by the blocks that are overwritten (``kept.blocks``).

What is weak: the file system's change time tells states apart, so that an edit of somebody else within the same tick
of its clock (1 to 10 ms) and of the same size is not seen.
"""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_left
from collections import OrderedDict
from typing import Final

from sublet.disk.private_dir import PrivateDir
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.snapshot import MAX_STORED_BYTES
from sublet.workspace.export import ViewRules
from sublet.workspace.kept.blocks import ALL, NOTHING, Blocks, Span
from sublet.workspace.kept.budget import KeptBudget
from sublet.workspace.kept.contents import QUICK_BYTES, KeptContents, Reading
from sublet.workspace.kept.log import (
    LOG,
    MAX_LOG_BYTES,
    By,
    KeptDirectory,
    KeptPlace,
    KeptState,
    Overwritten,
    encode_directory,
    encode_end,
    encode_state,
    encode_unwritten,
)
from sublet.workspace.kept.signature import Signature
from sublet.workspace.viewpath import Parts, refused

MAX_KNOWN: Final = 30_000
"""Files of which it is known how the lease left them; what it left of others is kept before it changes them again."""
MAX_LINE_BYTES: Final = 64 << 10
CLOCK_NS: Final = 20_000_000
"""By how much a file system's clock may lag behind the system's."""
_PERMISSIONS: Final = 0o7777

_Times = tuple[int, int, int]
"""What a ``Signature`` holds."""


class OverwriteKeeper:
    """Keeps the states of one directory for one lease.

    All but the copying of much happens in the thread that serves the lease.

    Args:
        place: as ``open_place`` returned it.
        rules: those of the lease.
        budget: shared by the directories of the lease.

    Raises:
        SubletError: ``UNAVAILABLE`` where the directory can't be read.
    """

    def __init__(self, place: KeptPlace, rules: ViewRules, budget: KeptBudget) -> None:
        found = place.found
        self._inodes = place.inodes
        try:
            directory = PrivateDir.open(place.directory)
            try:
                flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
                self._log = os.open(LOG, flags, dir_fd=directory.fileno())
                self._contents = KeptContents(directory, budget, place.blocks)
            except OSError:
                directory.close()
                raise
        except OSError as exc:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"where the lease keeps what it overwrites can't be opened: {exc.strerror}",
                "Look at the state directory: sublet doctor",
            ) from None
        self._budget = budget
        self._snapshot_rules = rules.without_repository()
        self._settled_ns = found.begin_ns - CLOCK_NS
        self._known: OrderedDict[int, _Times | None] = OrderedDict(found.known)
        self._unwritten = found.unwritten
        self._modes = found.made
        self._writing: set[int] = set()
        self._forgot = not found.complete
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
            self._forgot = True
        self._log_bytes = os.fstat(self._log).st_size
        self._end_torn_line()
        budget.take(_kept_bytes(found, {blocks.number: blocks.charged for blocks in place.blocks}))

    def knows(self, status: os.stat_result, span: Span = NOTHING) -> bool:
        """Tell whether nothing has to be kept before ``span`` of a file is changed.

        That is so where the file is as the lease left it, or as what is kept; and where it has only blocks kept, those
        of ``span`` are among them.
        """
        known = self._left(status.st_ino)
        if known is None or known != (status.st_size, status.st_mtime_ns, status.st_ctime_ns):
            return False
        blocks = self._contents.blocks(status.st_ino)
        return blocks is None or blocks.covers(span)

    def before(
        self, parts: Parts, status: os.stat_result, reading: Reading, *, patient: bool, span: Span = ALL
    ) -> None:
        """Keep what a file or link holds, unless that is kept, in the snapshot, or the lease's own.

        Args:
            parts: its name.
            status: its status.
            reading: opens it.
            patient: whether much is copied at once.
            span: the bytes that are about to be changed.

        Raises:
            OSError: ``EDQUOT`` where it can't be kept and the lease must keep all.
            NotKnownYet: it has to be copied first, which takes long.
        """
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            return
        blocks = self._contents.blocks(status.st_ino)
        if not self.knows(status):
            blocks = self._before(parts, status, reading, blocks, span, patient=patient)
        if blocks is not None:
            self._keep_blocks(blocks, status, reading, span, patient=patient)

    def _before(
        self, parts: Parts, status: os.stat_result, reading: Reading, old: Blocks | None, span: Span, *, patient: bool
    ) -> Blocks | None:
        """Keep what the lease did not leave so; return the blocks where only those are kept, none of them yet."""
        signature = Signature.of(status)
        by, path = self._whose(status, signature, b"/".join(parts))
        if old is not None:
            self._cut_off(old, needed=by != "other" or path != old.path)
        if by == "first" and self._is_in_snapshot(parts, status):
            self._know(status.st_ino, signature)
            return None
        number, target, blocks, lost = None, None, None, False
        try:
            if stat.S_ISLNK(status.st_mode):
                target = self._target(reading)
            else:
                number = self._copied(status, signature, reading, span, patient=patient)
                if number is None:
                    blocks = self._contents.begin(status, path)
                    number = blocks.number
        except OSError:
            lost = True
        state = KeptState(
            path,
            by,
            status.st_mode & _PERMISSIONS,
            status.st_mtime_ns,
            (status.st_uid, status.st_gid),
            status.st_size,
            number,
            target,
            lost,
            blocks is not None,
        )
        must_keep = self._budget.must_keep
        noted = not (lost and must_keep) and self._append(encode_state(state))
        if not noted and blocks is not None:
            self._contents.drop(blocks)
        if not noted and must_keep:
            if number is not None and blocks is None:
                self._contents.discard(number, signature.size)
            raise refused(errno.EDQUOT)
        self._know(status.st_ino, signature)
        return blocks if noted else None

    def _copied(
        self, status: os.stat_result, signature: Signature, reading: Reading, span: Span, *, patient: bool
    ) -> int | None:
        """Return the number of a copy of a file; None where its blocks are to be kept as they are overwritten.

        Raises:
            OSError: it can't be copied, or there is no room.
            NotKnownYet: that takes long.
        """
        whole = span[0] == 0 and span[1] >= signature.size
        if signature.size <= QUICK_BYTES or whole or not self._contents.may_keep_blocks():
            return self._contents.copy(status, signature, reading, patient=patient, shared=False)
        if self._contents.may_share(status):
            try:
                return self._contents.copy(status, signature, reading, patient=patient, shared=True)
            except OSError:
                return None
        return None

    def _keep_blocks(
        self, blocks: Blocks, status: os.stat_result, reading: Reading, span: Span, *, patient: bool
    ) -> None:
        """Keep the blocks of ``span`` of a file that is as the lease left it.

        Raises:
            OSError: ``EDQUOT`` as for ``before``.
            NotKnownYet: as for ``before``.
        """
        if not self._contents.keep(blocks, span, status, reading, patient=patient):
            if self._budget.must_keep:
                raise refused(errno.EDQUOT)
            self._append(encode_end(blocks.number, "lost"))
            self._contents.drop(blocks)
        elif blocks.is_complete and self._append(encode_end(blocks.number, "whole")):
            self._contents.finish(blocks)

    def _cut_off(self, blocks: Blocks, *, needed: bool) -> None:
        """Keep no more blocks of a file that is another now: what was not overwritten yet is gone by somebody else."""
        if blocks.verified == blocks.total:
            self._append(encode_end(blocks.number, "whole"))
            self._contents.finish(blocks)
        else:
            self._append(encode_end(blocks.number, "lost" if needed else "unneeded"))
            self._contents.drop(blocks)

    def writes(self, inode: int) -> None:
        """Take note that the lease is about to change a file: who is killed meanwhile does not say that others did."""
        if inode not in self._writing:
            self._writing.add(inode)
            self._append(b"W %d\n" % inode)

    def wrote(self, status: os.stat_result) -> None:
        """Take note of how the lease leaves a file that it goes on writing."""
        inode = status.st_ino
        signature = Signature.of(status)
        if inode in self._writing and inode in self._known:  # each of many writes comes here
            self._contents.sign(inode, signature)
            self._known[inode] = signature
            return
        self.writes(inode)
        self._know(inode, signature)

    def closed(self, inode: int) -> None:
        """Take note that the lease is done with a file for now, and how it left it."""
        if inode not in self._writing:
            return
        self._writing.discard(inode)
        if (signature := self._known.get(inode)) is not None:
            self._append(_known_line(inode, signature))

    def settled(self, status: os.stat_result) -> None:
        """Take note of how the lease leaves a file or link with which it is done for now."""
        self._writing.discard(status.st_ino)
        self._remember(status.st_ino, Signature.of(status))

    def made(self, status: os.stat_result) -> None:
        """Take note of a name that the lease has just made: what had its inode before is not there any more."""
        if (blocks := self._contents.blocks(status.st_ino)) is not None:
            self._cut_off(blocks, needed=True)
        if stat.S_ISDIR(status.st_mode):
            self.made_directory(status)
        else:
            self.settled(status)

    def copied_up(self, before: os.stat_result, after: os.stat_result) -> None:
        """Take note that a name has got a file of its own, which holds what the lease left in the one before."""
        if (blocks := self._contents.blocks(after.st_ino)) is not None:
            self._cut_off(blocks, needed=True)
        self._contents.moved(before.st_ino, after)
        self.settled(after)

    def followed(self, before: os.stat_result, after: os.stat_result, path: bytes) -> None:
        """Take note that the lease gave something another name, or took one, which changes nothing in it.

        Args:
            before: its status before.
            after: its status now.
            path: the name that it had.
        """
        if before.st_ino != after.st_ino:
            return
        if stat.S_ISDIR(after.st_mode):
            if after.st_ino not in self._modes:
                self.before_directory(path.split(b"/"), before)
                self.made_directory(after)
            return
        signature = Signature.of(before)
        if self._left(before.st_ino) == signature:
            self._remember(after.st_ino, Signature.of(after))
            return
        by, path = self._whose(before, signature, path)
        if by == "first" and self._is_in_snapshot(path.split(b"/"), before):
            self._remember(after.st_ino, Signature.of(after))
        elif by == "first" and len(self._unwritten) < MAX_KNOWN:
            self._unwritten[after.st_ino] = Signature.of(after), path
            self._append(encode_unwritten(after.st_ino, Signature.of(after), path))
        elif by == "first":
            self._forgot = True

    def made_directory(self, status: os.stat_result) -> None:
        """Take note that the lease made a directory, or which mode it gave one."""
        mode = status.st_mode & _PERMISSIONS
        if len(self._modes) < MAX_KNOWN or status.st_ino in self._modes:
            self._modes[status.st_ino] = mode
            self._append(b"M %d %d\n" % (status.st_ino, mode))

    def before_directory(self, parts: Parts, status: os.stat_result) -> None:
        """Take note of a directory that is about to be removed, or to get another mode."""
        mode = status.st_mode & _PERMISSIONS
        if (ours := self._modes.get(status.st_ino)) != mode:
            by: By = "first" if ours is None else "other"
            self._append(encode_directory(KeptDirectory(b"/".join(parts), by, mode)))

    def close(self) -> None:
        """Write down how the lease left what it was writing, and let go. Idempotent."""
        if self._log < 0:
            return
        for inode in list(self._writing):
            self.closed(inode)
        os.close(self._log)
        self._log = -1
        self._contents.close()

    def _left(self, inode: int) -> _Times | None:
        """Return how the lease left a file; None where that is not known."""
        blocks = self._contents.blocks(inode)
        if blocks is not None and blocks.mark is not None:
            return blocks.mark.signature
        return self._known.get(inode)

    def _whose(self, status: os.stat_result, signature: Signature, path: bytes) -> tuple[By, bytes]:
        """Return whose state a file is in, and the name that it had before the lease."""
        if status.st_ctime_ns < self._settled_ns:
            return "first", path
        unwritten = self._unwritten.get(status.st_ino)
        if unwritten is not None and unwritten[0] == signature:
            return "first", unwritten[1]
        if status.st_ino in self._known or self._contents.blocks(status.st_ino) is not None:
            left = self._left(status.st_ino)
            same_content = left is not None and left[:2] == signature[:2]
            return "unsure" if left is None or same_content else "other", path
        return "unsure" if self._forgot else "other", path

    def _is_in_snapshot(self, parts: Parts, status: os.stat_result) -> bool:
        if status.st_size > MAX_STORED_BYTES or self._snapshot_rules.hidden(parts):
            return False
        if stat.S_ISLNK(status.st_mode):
            return False  # its target is short, and is kept
        at = bisect_left(self._inodes, status.st_ino)
        return at < len(self._inodes) and self._inodes[at] == status.st_ino

    def _target(self, reading: Reading) -> bytes:
        fd = reading()
        try:
            return os.readlink(b"", dir_fd=fd)
        finally:
            os.close(fd)

    def _remember(self, inode: int, signature: Signature) -> None:
        if self._known.get(inode) != signature or inode in self._writing:
            self._append(_known_line(inode, signature))
        self._know(inode, signature)

    def _know(self, inode: int, signature: Signature) -> None:
        self._contents.sign(inode, signature)
        self._known[inode] = signature
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
            self._forgot = True

    def _end_torn_line(self) -> None:
        if self._log_bytes and self._log_bytes < MAX_LOG_BYTES:
            self._append(b"\n")

    def _append(self, line: bytes) -> bool:
        """Write down one fact; False where that can't be."""
        if self._log < 0 or self._log_bytes + len(line) > MAX_LOG_BYTES or len(line) > MAX_LINE_BYTES:
            self._forgot = True
            return False
        try:
            written = os.write(self._log, line)
        except OSError:
            self._forgot = True
            return False
        self._log_bytes += written
        if written < len(line):
            self._forgot = True
            return False
        return True


def _known_line(inode: int, signature: _Times) -> bytes:
    return b"K %d %d %d %d\n" % (inode, *signature)


def _kept_bytes(found: Overwritten, charged: dict[int, int]) -> int:
    """Return what is kept already; ``charged`` are the bytes of blocks to which more may come, by their numbers."""
    return sum(charged.get(state.number, state.size) for state in found.states if state.number is not None)
