"""What may be moved where: a rename must not bring names from under one rule to another, nor make links leave."""

from __future__ import annotations

import errno
import os
import stat

from sublet.workspace.export import ViewRules
from sublet.workspace.viewpath import Parts, link_stays, refused


def check_move(rules: ViewRules, directory: int, source: os.stat_result, old: Parts, new: Parts) -> None:
    """Refuse a rename of ``old``, a name in the open ``directory``, to ``new`` that the names alone do not forbid.

    What lies below a directory is not looked at here, but by ``held``.

    Raises:
        OSError: ``EACCES`` for a name that is there as a directory only, and for a link that would leave or may not be
            where it is moved; ``EXDEV`` for a directory that would come under other rules, so that the client copies
            instead.
    """
    if stat.S_ISDIR(source.st_mode):
        if rules.directory_only(old) != rules.directory_only(new) or rules.bars_links(old) != rules.bars_links(new):
            raise refused(errno.EXDEV)
        return
    barred = stat.S_ISLNK(source.st_mode) and rules.bars_links(new)
    if barred or rules.directory_only(old) or rules.directory_only(new):
        raise refused(errno.EACCES)
    deeper = len(new) - len(old)
    if deeper < 0 and stat.S_ISLNK(source.st_mode):
        target = os.readlink(old[-1], dir_fd=directory)
        if link_stays(len(old) - 1, target) and not link_stays(len(old) - 1 + deeper, target):
            raise refused(errno.EACCES)
