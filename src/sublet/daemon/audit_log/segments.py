"""The files of the log. Each is named by its first entry, and made longer in advance, with zeros after its last line.

Where a file has room already, making a line durable costs a tenth of a millisecond; where it has to grow, several.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from sublet.daemon.audit_log.chain import MAX_LINE_BYTES
from sublet.disk.durable import sync_directory
from sublet.protocol.patterns import Pattern

GROW_BYTES: Final = 512 * 1024
MAX_SEGMENT_BYTES: Final = 16 << 20
MAX_SEGMENTS: Final = 64

_NAME = Pattern(r"^audit-([0-9]{12})\.jsonl$")


def segments(directory: Path) -> list[tuple[int, Path]]:
    """Return number of the first entry and path of each file, in order."""
    found = [(int(match[1]), path) for path in directory.iterdir() if (match := _NAME.match(path.name))]
    return sorted(found)


def segment_path(directory: Path, first: int) -> Path:
    """Return where the file that begins with entry ``first`` lies."""
    return directory / f"audit-{first:012d}.jsonl"


def lines(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file without their newlines; what is left then is no line (``torn``).

    Raises:
        OSError: it can't be read.
    """
    with _opened(path) as file:
        while True:
            line = file.readline(MAX_LINE_BYTES + 1)
            if not line.endswith(b"\n") or line.startswith(b"\0"):
                return
            yield line[:-1]


def torn(path: Path) -> tuple[int, bytes]:
    """Return where the last complete line ends, and what stands after it besides zeros.

    Raises:
        OSError: it can't be read.
    """
    end = sum(len(line) + 1 for line in lines(path))
    with _opened(path) as file:
        file.seek(end)
        return end, file.read().rstrip(b"\0")


def _opened(path: Path) -> BinaryIO:
    """Open a file of the log, and nothing that one would wait for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return open(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


class SegmentFile:
    """The file that is written to. Blocks: one thread at a time calls it."""

    def __init__(self, path: Path, end: int) -> None:
        new = not path.exists()
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._end = end
        self._size = os.fstat(self._fd).st_size
        try:
            if new:
                sync_directory(path.parent)
            self._grow(0)
        except OSError:
            os.close(self._fd)  # it is tried again, and again
            raise

    @property
    def end(self) -> int:
        """How many bytes it holds."""
        return self._end

    def write(self, content: bytes) -> None:
        """Write after the last line, without waiting for the disk. Where it fails, nothing counts as written.

        Raises:
            OSError: it can't be written.
        """
        self._grow(len(content))
        written = 0
        while written < len(content):
            written += os.pwrite(self._fd, content[written:], self._end + written)
        self._end += len(content)

    def take_back(self, size: int) -> None:
        """Count the last ``size`` bytes as not written, so that what could not be made durable is written again."""
        self._end -= size

    def wipe(self, size: int) -> None:
        """Put zeros over what a torn write left after the last line."""
        os.pwrite(self._fd, bytes(size), self._end)
        os.fsync(self._fd)

    def sync(self) -> None:
        """Return when all that was written would survive a loss of power."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Cut the zeros off and close."""
        try:
            os.ftruncate(self._fd, self._end)
            os.fsync(self._fd)
        finally:
            os.close(self._fd)

    def _grow(self, more: int) -> None:
        while self._end + more > self._size:
            os.pwrite(self._fd, bytes(GROW_BYTES), self._size)
            self._size += GROW_BYTES
            os.fsync(self._fd)
