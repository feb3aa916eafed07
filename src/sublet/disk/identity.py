"""Telling a file from another one that takes its name."""

from __future__ import annotations

import os


def identity_of(path: str) -> tuple[int, int] | None:
    """Return what tells the file at ``path`` from another one that takes its name; None where there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
