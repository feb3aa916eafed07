"""Going down into directories by descriptors, one after the other: no link, no mount, no recursion, no way out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from sublet.workspace.confined.bounds import MAX_DEPTH

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Level:
    """One directory, open while it is handed out. Whoever gets it puts into ``enter`` what is to be entered next.

    ``marked`` is True below a name that was put there so.
    """

    fd: int
    parts: tuple[bytes, ...]
    marked: bool = False
    enter: list[tuple[bytes, bool]] = field(default_factory=list)


def descend(top: int, parts: tuple[bytes, ...], shut: Callable[[tuple[bytes, ...]], None]) -> Iterator[Level]:
    """Yield the directory ``top``, and then those below it that are wanted.

    Args:
        top: descriptor of a directory that can be listed; closed here.
        parts: what it is called.
        shut: is told of directories that are too deep, can't be read, or belong to another file system.
    """
    stack = [Level(top, parts)]
    try:
        device = os.fstat(top).st_dev
        yield stack[-1]
        while stack:
            level = stack[-1]
            if not level.enter:
                os.close(stack.pop().fd)
                continue
            name, marked = level.enter.pop()
            below = (*level.parts, name)
            if len(stack) >= MAX_DEPTH:
                shut(below)
                continue
            try:
                fd = os.open(name, _OPEN, dir_fd=level.fd)
            except (FileNotFoundError, NotADirectoryError):
                continue  # removed or replaced since it was listed
            except OSError:
                shut(below)
                continue
            stack.append(Level(fd, below, level.marked or marked))
            if os.fstat(fd).st_dev != device:
                shut(below)
                os.close(stack.pop().fd)
                continue
            yield stack[-1]
    finally:
        for level in stack:
            os.close(level.fd)
