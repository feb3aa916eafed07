"""What may be moved where: a rename must not bring names from under one rule to another, nor make links leave."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from sublet.workspace.confined.bounds import check_height
from sublet.workspace.model import ViewRules
from sublet.workspace.openat2 import DIRECTORY_PATH, Opener
from sublet.workspace.viewpath import Parts, link_stays, refused

MAX_MOVED_ENTRIES: Final = 20_000
"""Entries looked at for links that would leave, when a directory moves up; beyond, the client has to copy."""


def check_move(rules: ViewRules, open_beneath: Opener, directory: int, old: Parts, new: Parts) -> None:
    """Refuse a rename of ``old``, a name in the open ``directory``, to ``new`` that the names alone do not forbid.

    Raises:
        OSError: ``EACCES`` for a name that is there as a directory only, and for a link that would leave or may not be
            where it is moved; ``ENAMETOOLONG`` for a directory of which something would lie too deep; ``EXDEV`` for a
            directory that holds such a link, is too large to tell, or would come under other rules, so that the client
            copies instead.
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
        _check_links(open_beneath, directory, old, source, deeper)
    elif deeper > 0 and stat.S_ISDIR(source.st_mode):
        check_height(open_beneath, directory, old[-1], len(new))


def _check_links(open_beneath: Opener, directory: int, old: Parts, source: os.stat_result, deeper: int) -> None:
    """Refuse to move a link, or a directory with links, up to where a target that stays inside would leave."""
    name, depth = old[-1], len(old) - 1
    if stat.S_ISLNK(source.st_mode):
        target = os.readlink(name, dir_fd=directory)
        if link_stays(depth, target) and not link_stays(depth + deeper, target):
            raise refused(errno.EACCES)
    elif stat.S_ISDIR(source.st_mode):
        top = os.open(name, DIRECTORY_PATH | os.O_NOFOLLOW, dir_fd=directory)
        try:
            _check_links_below(open_beneath, top, depth + 1, deeper)
        finally:
            os.close(top)


def _check_links_below(open_beneath: Opener, top: int, depth: int, deeper: int) -> None:
    pending: list[tuple[bytes, int]] = [(b".", depth)]
    seen = 0
    while pending:
        path, level = pending.pop()
        fd = open_beneath(top, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    seen += 1
                    name = os.fsencode(entry.name)
                    if seen > MAX_MOVED_ENTRIES:
                        raise refused(errno.EXDEV)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append((path + b"/" + name, level + 1))
                    elif entry.is_symlink():
                        target = os.readlink(name, dir_fd=fd)
                        if link_stays(level, target) and not link_stays(level + deeper, target):
                            raise refused(errno.EXDEV)
        finally:
            os.close(fd)
