"""Work on the files of a mounted lease by single, confined operations, each in a thread and bounded (DESIGN 4.9).

What is read, changed and followed is exactly what ``confined`` allows: no link is followed, no device, FIFO or socket
is opened, nothing outside of the lease's directories is reached. A mount that does not answer costs a bounded number
of threads, which end with the mount; whoever asked is told after ``ANSWER_SECONDS``.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

import anyio
import anyio.to_thread

from sublet.workspace.archive.tree_pack import AllVisible
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.model import AccessMode
from sublet.workspace.quota import Quota
from sublet.workspace.viewpath import refused

ANSWER_SECONDS: Final = 60.0
"""How long one operation may take. A dead mount fails long before; a large search may need a while."""
MAX_THREADS: Final = 2
"""Operations of one lease that may be under way, those that nobody waits for any more included."""
MAX_READ_BYTES: Final = 8 << 20
MAX_WRITE_BYTES: Final = 32 << 20
MAX_SEARCHED_FILE_BYTES: Final = 8 << 20
MAX_SEARCHED_BYTES: Final = 256 << 20
MAX_SEARCHED_FILES: Final = 50_000
MAX_DEPTH: Final = 64
MAX_LISTED: Final = 100_000
MAX_LINE_CHARS: Final = 400
MAX_GLOB_CHARS: Final = 200

T = TypeVar("T")
Parts = tuple[bytes, ...]
Kind = Literal["file", "directory", "link", "other"]


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some bytes of a file, and how many it has in all."""

    data: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a directory."""

    name: str
    kind: Kind
    size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Entries of a directory in order; ``more`` tells that not all are here."""

    entries: Sequence[Entry]
    more: bool


@dataclass(frozen=True, slots=True)
class Match:
    """A line that holds what was searched for; ``line`` counts from one, 0 where only the name matched."""

    path: tuple[str, ...]
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Matches:
    """What a search found; ``more`` tells that it ended at a bound."""

    found: Sequence[Match]
    files: int
    more: bool


class MountedFiles:
    """The directories of one mounted lease. Nothing is opened before the first operation.

    Args:
        roots: by name, where each directory is and how it may be used.
        seconds: how long one operation may take.
    """

    def __init__(self, roots: Mapping[str, tuple[Path, AccessMode]], *, seconds: float = ANSWER_SECONDS) -> None:
        self._roots = dict(roots)
        self._seconds = seconds
        self._open: dict[str, ConfinedFs] = {}
        self._lock = threading.Lock()
        self._under_way = 0
        self._closed = False
        self._limiter = anyio.CapacityLimiter(MAX_THREADS)

    async def read(self, path: tuple[str, ...], offset: int, size: int) -> FilePart:
        """Return up to ``size`` bytes from ``offset`` of a regular file.

        Raises:
            OSError: as ``ConfinedFs.open_read``; ``EINVAL`` for more than ``MAX_READ_BYTES``.
            TimeoutError: the mount does not answer.
        """
        if not 0 <= size <= MAX_READ_BYTES or offset < 0:
            raise refused(errno.EINVAL)
        return await self._in_thread(lambda: self._read(path, offset, size))

    async def write(self, path: tuple[str, ...], data: bytes) -> bool:
        """Make ``data`` the whole content of a regular file and tell whether it is new.

        Directories above it are made. A file that is there keeps its mode and its other names.

        Raises:
            OSError: as ``WritableFs.open_write``; ``EROFS`` for what may only be read; ``EFBIG``.
            TimeoutError: the mount does not answer.
        """
        if len(data) > MAX_WRITE_BYTES:
            raise refused(errno.EFBIG)
        return await self._in_thread(lambda: self._write(path, data))

    async def list(self, path: tuple[str, ...], limit: int) -> Listing:
        """Return the first ``limit`` entries of a directory by name; the top of the view lists the directories.

        Raises:
            OSError: as ``ConfinedFs.open_directory``.
            TimeoutError: the mount does not answer.
        """
        if not path:
            return Listing(
                [Entry(name, "directory", 0) for name in list(self._roots)[:limit]], len(self._roots) > limit
            )
        return await self._in_thread(lambda: self._list(path, limit))

    async def search(self, path: tuple[str, ...], text: str, name: str, limit: int, *, ignore_case: bool) -> Matches:
        """Return lines that hold ``text``, of files below ``path`` whose name matches the glob ``name``.

        An empty ``text`` finds the files themselves; a path to a file searches that alone.

        Raises:
            OSError: the start can't be opened; ``EINVAL`` for a glob that is too long.
            TimeoutError: the mount does not answer.
        """
        if len(name) > MAX_GLOB_CHARS:
            raise refused(errno.EINVAL)
        starts = [path] if path else [(root,) for root in self._roots]
        search = _Search(text, name, limit, ignore_case=ignore_case)
        return await self._in_thread(lambda: self._search(starts, search))

    async def move(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        """Rename to a name that is free, in the same resource.

        Raises:
            OSError: as ``WritableFs.rename``; ``EXDEV`` between resources; ``EROFS``; ``EEXIST``.
            TimeoutError: the mount does not answer.
        """
        await self._in_thread(lambda: self._move(old, new))

    async def delete(self, path: tuple[str, ...]) -> None:
        """Remove a file, a link or an empty directory.

        Raises:
            OSError: as ``WritableFs.remove`` and ``rmdir``; ``EROFS``.
            TimeoutError: the mount does not answer.
        """
        await self._in_thread(lambda: self._delete(path))

    async def aclose(self) -> None:
        """Let go of the mount; what still waits for it does so when it ends."""
        with self._lock:
            self._closed = True
            idle = self._under_way == 0
        if idle:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._close, abandon_on_cancel=True)

    async def _in_thread(self, action: Callable[[], T]) -> T:
        with anyio.fail_after(self._seconds):
            return await anyio.to_thread.run_sync(self._counted, action, abandon_on_cancel=True, limiter=self._limiter)

    def _counted(self, action: Callable[[], T]) -> T:
        """Do ``action`` unless it is over; the last that is under way then lets go, since descriptors are reused."""
        with self._lock:
            if self._closed:
                raise refused(errno.EBADF)
            self._under_way += 1
        try:
            return action()
        finally:
            with self._lock:
                self._under_way -= 1
                last = self._closed and self._under_way == 0
            if last:
                self._close()

    def _close(self) -> None:
        with self._lock:
            opened, self._open = self._open, {}
        for fs in opened.values():
            fs.close()

    def _at(self, path: tuple[str, ...]) -> tuple[ConfinedFs, Parts]:
        """Return the directory that ``path`` is in, and the rest of it.

        Raises:
            OSError: ``ENOENT`` for no such directory, ``EINVAL`` for what is no name.
        """
        if not path or path[0] not in self._roots:
            raise refused(errno.ENOENT)
        if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in path):
            raise refused(errno.EINVAL)
        name = path[0]
        with self._lock:
            fs = self._open.get(name)
        if fs is None:
            where, mode = self._roots[name]
            descriptor = ConfinedFs.open_root(where)
            if mode == "rw":
                made: ConfinedFs = WritableFs(descriptor, AllVisible(), Quota(), lambda _: None)
            else:
                made = ConfinedFs(descriptor, AllVisible(), Quota())
            with self._lock:
                fs = self._open.setdefault(name, made)
            if fs is not made:
                made.close()
        return fs, tuple(os.fsencode(part) for part in path[1:])

    def _writable(self, path: tuple[str, ...]) -> tuple[WritableFs, Parts]:
        fs, parts = self._at(path)
        if not isinstance(fs, WritableFs):
            raise refused(errno.EROFS)
        return fs, parts

    def _read(self, path: tuple[str, ...], offset: int, size: int) -> FilePart:
        fs, parts = self._at(path)
        file = fs.open_read(parts)
        try:
            return FilePart(_all(file.read, offset, size), file.stat().st_size)
        finally:
            file.close()

    def _write(self, path: tuple[str, ...], data: bytes) -> bool:
        fs, parts = self._writable(path)
        if not parts:
            raise refused(errno.EISDIR)
        for end in range(1, len(parts)):
            with suppress(FileExistsError):
                fs.mkdir(parts[:end], 0o777)
        new = True
        with suppress(FileNotFoundError):
            fs.check_regular(fs.lstat(parts))
            new = False
        file = fs.open_write(parts, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            file.write(data, 0)
        finally:
            file.close()
        return new

    def _list(self, path: tuple[str, ...], limit: int) -> Listing:
        fs, parts = self._at(path)
        found: list[Entry] = []
        directory = fs.open_directory(parts)
        try:
            for name, status in directory.entries():
                if len(found) == MAX_LISTED:
                    break
                found.append(Entry(os.fsdecode(name), _kind(status), status.st_size))
        finally:
            directory.close()
        found.sort(key=lambda entry: entry.name)
        return Listing(found[:limit], len(found) > limit or len(found) == MAX_LISTED)

    def _search(self, starts: Sequence[tuple[str, ...]], search: _Search) -> Matches:
        for start in starts:
            fs, parts = self._at(start)
            status = fs.lstat(parts)
            if stat.S_ISDIR(status.st_mode):
                for found, size in _walk(fs, parts):
                    if not search.look(fs, start[0], found, size):
                        return search.matches(more=True)
            elif not search.look(fs, start[0], parts, status.st_size):
                return search.matches(more=True)
        return search.matches(more=False)

    def _move(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        fs, source = self._writable(old)
        other, target = self._writable(new)
        if fs is not other:
            raise refused(errno.EXDEV)
        if not source or not target:
            raise refused(errno.EINVAL)
        fs.rename(source, target, replace=False)

    def _delete(self, path: tuple[str, ...]) -> None:
        fs, parts = self._writable(path)
        if not parts:
            raise refused(errno.EINVAL)
        if stat.S_ISDIR(fs.lstat(parts).st_mode):
            fs.rmdir(parts)
        else:
            fs.remove(parts)


class _Search:
    """One search, until a bound."""

    def __init__(self, text: str, name: str, limit: int, *, ignore_case: bool) -> None:
        self._wanted = text.lower() if ignore_case else text
        self._fold = ignore_case
        self._name = re.compile(fnmatch.translate(name or "*"))
        self._limit = limit
        self._found: list[Match] = []
        self._files = self._bytes = 0

    def matches(self, *, more: bool) -> Matches:
        """Return what was found."""
        return Matches(self._found, self._files, more)

    def look(self, fs: ConfinedFs, root: str, parts: Parts, size: int) -> bool:
        """Look at one file and tell whether to go on."""
        if not parts or not self._name.match(os.fsdecode(parts[-1])):
            return True
        if self._files == MAX_SEARCHED_FILES or self._bytes > MAX_SEARCHED_BYTES:
            return False
        path = (root, *map(os.fsdecode, parts))
        self._files += 1
        if not self._wanted:
            self._found.append(Match(path, 0, ""))
            return len(self._found) < self._limit
        if size > MAX_SEARCHED_FILE_BYTES:
            return True
        with suppress(OSError):  # it may be gone, or not for us to read
            file = fs.open_read(parts)
            try:
                data = _all(file.read, 0, MAX_SEARCHED_FILE_BYTES)
            finally:
                file.close()
            self._bytes += len(data)
            if b"\0" not in data:
                return self._lines(path, data.decode("utf-8", "replace"))
        return True

    def _lines(self, path: tuple[str, ...], text: str) -> bool:
        if self._wanted not in (text.lower() if self._fold else text):
            return True
        for number, line in enumerate(text.split("\n"), 1):
            if self._wanted in (line.lower() if self._fold else line):
                self._found.append(Match(path, number, line[:MAX_LINE_CHARS]))
                if len(self._found) >= self._limit:
                    return False
        return True


def _walk(fs: ConfinedFs, top: Parts) -> Iterator[tuple[Parts, int]]:
    """Yield the regular files below a directory with their sizes, in order of their names; links are not followed."""
    pending: list[Parts] = [top]
    while pending:
        parts = pending.pop()
        try:
            directory = fs.open_directory(parts)
        except OSError:
            if parts == top:
                raise
            continue
        try:
            entries = sorted(directory.entries())
        finally:
            directory.close()
        below = []
        for name, status in entries:
            if stat.S_ISREG(status.st_mode):
                yield (*parts, name), status.st_size
            elif stat.S_ISDIR(status.st_mode) and len(parts) < MAX_DEPTH:
                below.append((*parts, name))
        pending += reversed(below)


def _all(read: Callable[[int, int], bytes], offset: int, size: int) -> bytes:
    """Return ``size`` bytes from ``offset``, fewer only at the end: a single read may bring less."""
    data = bytearray()
    while len(data) < size and (piece := read(min(1 << 20, size - len(data)), offset + len(data))):
        data += piece
    return bytes(data)


def _kind(status: os.stat_result) -> Kind:
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "directory"
    return "link" if stat.S_ISLNK(status.st_mode) else "other"
