"""A tree, read by our own walk, as the stream that ``git fast-import`` makes a commit of."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import IO, Final

from sublet.protocol.text import clean_name
from sublet.workspace.audit.shadow_git import mask, quoted
from sublet.workspace.confined.bounds import open_up
from sublet.workspace.confined.fs import OPEN_FILE
from sublet.workspace.export import ViewRules
from sublet.workspace.view.walk import Budget, Directory, walk

_LINK: Final = 0o120000
_PIECE: Final = 256 * 1024
_DIGITS: Final = 20
"""Of a file's size in the stream, which is written again where the file had another size when it was read."""


def write_snapshot(
    stream: IO[bytes],
    root_fd: int,
    rules: ViewRules,
    budget: Budget,
    check: Callable[[], None],
    branch: str,
    parent: str | None = None,
) -> int:
    """Write the commit of what ``rules`` show of a tree and git can hold.

    Args:
        stream: an empty file; it stands at its beginning afterwards.
        root_fd: the open root of the tree.
        rules: what is seen of it.
        budget: of the walk.
        check: called before each name; raises to end it.
        branch: the reference that is set to the commit.
        parent: the commit before, or None. A tree that was worked in has one: what an agent has shut in it is opened.

    Returns:
        The bytes that were written.

    Raises:
        OSError: something of a tree with a parent can't be read.
    """
    stream.write(b"commit %s\nmark :1\n" % branch.encode())
    stream.write(b"committer Sublet <sublet@localhost> 946684800 +0000\ndata 8\nsnapshot\n")
    if parent is not None:
        stream.write(b"from %s\n" % parent.encode())
    stream.write(b"deleteall\n")
    for directory in walk(root_fd, rules, budget):
        if isinstance(directory, Directory):
            for name, status in directory.entries:
                check()
                if parent is not None:
                    open_up(directory.fd, name, status)
                _add(stream, directory, name, status)
        elif parent is not None:  # what can't be read must not pass for removed
            raise OSError(0, f"{clean_name(b'/'.join(directory.parts))}: {directory.reason}")
    stream.write(b"\nget-mark :1\ndone\n")
    size = stream.tell()
    stream.seek(0)
    return size


def _add(stream: IO[bytes], directory: Directory, name: bytes, status: os.stat_result) -> None:
    """Write one name of a tree, where git can hold it."""
    path = b"/".join((*directory.parts, name))
    if stat.S_ISLNK(status.st_mode):
        if _holds(path, _LINK):
            target = os.readlink(name, dir_fd=directory.fd)
            stream.write(b"M %o inline %s\ndata %d\n%s\n" % (_LINK, quoted(path), len(target), target))
    elif stat.S_ISREG(status.st_mode):
        mode = 0o100755 if status.st_mode & stat.S_IXUSR else 0o100644
        if _holds(path, mode):
            fd = os.open(name, os.O_RDONLY | OPEN_FILE, dir_fd=directory.fd)
            with open(fd, "rb") as file:
                stream.write(b"M %o inline %s\n" % (mode, quoted(path)))
                _copy(stream, file, status.st_size)


def _copy(stream: IO[bytes], file: IO[bytes], size: int) -> None:
    """Write at most ``size`` bytes of a file, which may have become another one, as the content of a name."""
    at = stream.tell()
    stream.write(b"data %0*d\n" % (_DIGITS, size))
    left = size
    while left and (piece := file.read(min(left, _PIECE))):
        stream.write(piece)
        left -= len(piece)
    stream.write(b"\n")
    if left:
        end = stream.tell()
        stream.seek(at)
        stream.write(b"data %0*d\n" % (_DIGITS, size - left))
        stream.seek(end)


def _holds(path: bytes, mode: int) -> bool:
    """Tell whether git takes the path; it refuses names such as ``.git``, whatever the case."""
    return mask(path, mode) == path
