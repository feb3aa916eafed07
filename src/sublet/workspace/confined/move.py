"""What may be moved where: a rename must not bring names from under one rule to another, nor make links leave."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

from sublet.workspace.model import ViewRules
from sublet.workspace.openat2 import DIRECTORY_PATH, Opener
from sublet.workspace.viewpath import Parts, link_stays, refused

MAX_MOVED_ENTRIES: Final = 20_000
"""Entries looked at for links that would leave, when a directory moves up; beyond, the client has to copy."""
MAX_MOVED_BYTES: Final = 1 << 20
"""Bytes of paths of subdirectories that wait to be looked at; beyond, likewise."""
_STEP_ENTRIES: Final = 64
"""Entries that are looked at in one step, which takes some hundred microseconds."""


def check_move(rules: ViewRules, open_beneath: Opener, directory: int, old: Parts, new: Parts) -> Iterator[None]:
    """Refuse a rename of ``old``, a name in the open ``directory``, to ``new`` that the names alone do not forbid.

    It looks step by step, so that others may have the loop between two steps. What comes into the directory meanwhile
    may have been missed (``WritableFs.moving``).

    Raises:
        OSError: ``EACCES`` for a name that is there as a directory only, and for a link that would leave or may not be
            where it is moved; ``EXDEV`` for a directory that holds such a link, is too large to tell, or would come
            under other rules, so that the client copies instead.
    """
    source = os.stat(old[-1], dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(source.st_mode):
        if rules.directory_only(old) != rules.directory_only(new) or rules.bars_links(old) != rules.bars_links(new):
            raise refused(errno.EXDEV)
    else:
        barred = stat.S_ISLNK(source.st_mode) and rules.bars_links(new)
        if barred or rules.directory_only(old) or rules.directory_only(new):
            raise refused(errno.EACCES)
    deeper = len(new) - len(old)
    if deeper < 0:
        yield from _check_links(open_beneath, directory, old, source, deeper)


def _check_links(
    open_beneath: Opener, directory: int, old: Parts, source: os.stat_result, deeper: int
) -> Iterator[None]:
    """Refuse to move a link, or a directory with links, up to where a target that stays inside would leave."""
    name, depth = old[-1], len(old) - 1
    if stat.S_ISLNK(source.st_mode):
        target = os.readlink(name, dir_fd=directory)
        if link_stays(depth, target) and not link_stays(depth + deeper, target):
            raise refused(errno.EACCES)
    elif stat.S_ISDIR(source.st_mode):
        top = os.open(name, DIRECTORY_PATH | os.O_NOFOLLOW, dir_fd=directory)
        try:
            yield from _check_links_below(open_beneath, top, depth + 1, deeper)
        finally:
            os.close(top)


def _check_links_below(open_beneath: Opener, top: int, depth: int, deeper: int) -> Iterator[None]:
    pending: list[tuple[bytes, int]] = [(b".", depth)]
    seen, waiting = 0, 1
    while pending:
        path, level = pending.pop()
        waiting -= len(path)
        fd = open_beneath(top, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    seen += 1
                    name = os.fsencode(entry.name)
                    if seen > MAX_MOVED_ENTRIES or waiting > MAX_MOVED_BYTES:
                        raise refused(errno.EXDEV)
                    if seen % _STEP_ENTRIES == 0:
                        yield
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((path + b"/" + name, level + 1))
                        waiting += len(path) + 1 + len(name)
                    elif entry.is_symlink():
                        target = os.readlink(name, dir_fd=fd)
                        if link_stays(level, target) and not link_stays(level + deeper, target):
                            raise refused(errno.EXDEV)
        finally:
            os.close(fd)


class MovesUnderWay:
    """The directories of one tree that are looked at step by step before they are moved."""

    def __init__(self) -> None:
        self._disturbed: dict[tuple[bytes, ...], bool] = {}

    def begin(self, old: Parts) -> None:
        """Look out for changes below ``old``.

        Raises:
            OSError: ``EBUSY`` where the same directory is being moved already.
        """
        if tuple(old) in self._disturbed:
            raise refused(errno.EBUSY)
        self._disturbed[tuple(old)] = False

    def note(self, parts: Parts) -> None:
        """Take note that ``parts`` was changed."""
        for old in self._disturbed:
            if tuple(parts[: len(old)]) == old:
                self._disturbed[old] = True

    def undisturbed(self, old: Parts) -> bool:
        """Tell whether nothing was changed below ``old`` since it was asked last."""
        before, self._disturbed[tuple(old)] = self._disturbed[tuple(old)], False
        return not before

    def end(self, old: Parts) -> None:
        """Look out no more."""
        del self._disturbed[tuple(old)]
