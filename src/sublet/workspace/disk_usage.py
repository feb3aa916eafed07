"""How much a directory of ours takes on the disk."""

from __future__ import annotations

import os
from pathlib import Path

BLOCK_BYTES = 512
"""Unit of ``st_blocks``, whatever the file system."""


def disk_usage(directory: Path, *, enough: int | None = None) -> int:
    """Return the bytes that ``directory`` and what lies below it take, links not followed.

    What vanishes or can't be read meanwhile counts for nothing. Blocks: call it in a thread.

    Args:
        directory: where to begin.
        enough: stop counting beyond so many bytes.
    """
    total = 0
    rest = [directory]
    while rest and (enough is None or total <= enough):
        try:
            with os.scandir(rest.pop()) as entries:
                for entry in entries:
                    try:
                        total += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
                        if entry.is_dir(follow_symlinks=False):
                            rest.append(directory / entry.path)
                    except OSError:
                        continue
        except OSError:
            continue
    return total
