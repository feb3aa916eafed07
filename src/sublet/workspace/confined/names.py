"""One name in an opened directory: what is under it, and whether anything is."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sublet.workspace.viewpath import refused


@contextmanager
def held_name(directory: int, name: bytes) -> Iterator[int]:
    """Hold what is under a name, whatever becomes of the name.

    Raises:
        OSError: ``ESTALE`` where nothing is there any more.
    """
    try:
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        raise refused(errno.ESTALE) from None
    try:
        yield fd
    finally:
        os.close(fd)


def is_there(directory: int, name: bytes) -> bool:
    """Tell whether anything has this name, a link that leads nowhere included."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
