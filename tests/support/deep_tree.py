"""Directories nested deeper than a path can name, and their removal, which neither shutil nor pytest can do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from sublet.disk.removal import remove_tree

MAX_SHALLOW: Final = 100
"""Levels that everybody can remove; ``shutil`` calls itself for each."""

_deep: list[Path] = []


def remove_deep(scratch: Path | None) -> None:
    """Remove what ``nest`` has made too deep for others since the last call, wherever it was moved meanwhile.

    Args:
        scratch: the directory of the test that made it, None where it has none.
    """
    if not _deep:
        return
    tops = [*_deep]
    _deep.clear()
    for top in tops:
        remove_tree(top)
    if scratch is not None and scratch.is_dir():
        for path in scratch.iterdir():
            remove_tree(path)


def nest(top: Path, depth: int, *, name: bytes = b"d", mode: int = 0o700) -> None:
    """Make ``depth`` directories below ``top``, each in the one before; the way of an attacker who has a shell.

    What is deep goes when the test is over: see ``remove_deep``.

    Args:
        top: the outermost, which is made with its parents where it is missing.
        depth: how many below it.
        name: of each.
        mode: of each, given once the next one is made.
    """
    if depth > MAX_SHALLOW:
        _deep.append(top)
    top.mkdir(parents=True, exist_ok=True)
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, 0o700, dir_fd=fd)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.fchmod(fd, mode)
        os.close(fd)
        fd = below
    os.fchmod(fd, mode)
    os.close(fd)
