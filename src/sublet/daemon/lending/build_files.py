"""Files with which a build begins, in what is lent: times in a mount are too coarse for some of these (case D07)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Final

BUILD_FILES: Final = ("Makefile", "makefile", "GNUmakefile", "build.ninja")
"""What make and ninja begin with; both decide by the times of files."""


def build_files(directories: Iterable[str]) -> list[str]:
    """Return the build files directly in the lent directories, by their names alone. It blocks."""
    found: list[str] = []
    for directory in directories:
        for name in BUILD_FILES:
            try:
                if stat.S_ISREG(os.lstat(os.path.join(directory, name)).st_mode):
                    found.append(name)
            except OSError:
                continue
    return sorted(set(found))
