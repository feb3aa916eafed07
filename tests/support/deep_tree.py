"""Directories nested deeper than a path can name."""

from __future__ import annotations

import os
from pathlib import Path


def nest(top: Path, depth: int, *, name: bytes = b"d", mode: int = 0o700) -> None:
    """Make ``depth`` directories below ``top``, each in the one before; the way of an attacker who has a shell.

    Args:
        top: the outermost, which is made with its parents where it is missing.
        depth: how many below it.
        name: of each.
        mode: of each, given once the next one is made.
    """
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
