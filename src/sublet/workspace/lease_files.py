"""Work on the files of a mounted lease by single, confined operations, each in a thread and bounded (DESIGN 4.9).

What is read, changed and followed is exactly what ``confined`` allows: no link is followed, no device, FIFO or socket
is opened, nothing outside of the lease's directories is reached. A mount that does not answer costs a bounded number
of threads, which end with the mount; whoever asked is told after ``ANSWER_SECONDS``.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

import anyio

from sublet import deadlines
from sublet.workspace.archive.tree_pack import AllVisible
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import AccessMode
from sublet.workspace.lease_search import Matches, Parts, Search, in_full, walk
from sublet.workspace.quota import Quota
from sublet.workspace.viewpath import refused

ANSWER_SECONDS: Final = 60.0
"""How long one operation may take. A dead mount fails long before; a large search may need a while."""
MAX_THREADS: Final = 2
"""Operations of one lease that may be under way, those that nobody waits for any more included."""
MAX_READ_BYTES: Final = 8 << 20
MAX_WRITE_BYTES: Final = 32 << 20
MAX_LISTED: Final = 100_000
MAX_GLOB_CHARS: Final = 200

T = TypeVar("T")
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
        # Of its own, and not anyio's threads: an operation that nobody waits for any more has to keep its place.
        self._threads = ThreadPoolExecutor(MAX_THREADS, "lease files")

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

    async def search(
        self,
        path: tuple[str, ...],
        text: str,
        name: str,
        limit: int,
        *,
        ignore_case: bool,
        may: Callable[[tuple[str, ...]], bool] = lambda _: True,
    ) -> Matches:
        """Return lines that hold ``text``, of files below ``path`` whose name matches the glob ``name``.

        A file of which ``may`` says no is counted and not opened, whatever it holds.

        An empty ``text`` finds the files themselves; a path to a file searches that alone.

        Raises:
            OSError: the start can't be opened; ``EINVAL`` for a glob that is too long.
            TimeoutError: the mount does not answer.
        """
        if len(name) > MAX_GLOB_CHARS:
            raise refused(errno.EINVAL)
        starts = [path] if path else [(root,) for root in self._roots]
        search = Search(text, name, limit, ignore_case=ignore_case, may=may)
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
        """Let go of the mount; what still waits for it does so when it ends. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle = self._under_way == 0
        if idle:
            with anyio.CancelScope(shield=True):
                await asyncio.get_running_loop().run_in_executor(self._threads, self._close)
        self._threads.shutdown(wait=False)

    async def _in_thread(self, action: Callable[[], T]) -> T:
        if self._closed:
            raise refused(errno.EBADF)
        async with deadlines.timeout(self._seconds):
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._counted, action)

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
                made: ConfinedFs = WritableFs(descriptor, AllVisible(), Quota(), lambda _: None, private=True)
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
            return FilePart(in_full(file.read, offset, size), file.stat().st_size)
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

    def _search(self, starts: Sequence[tuple[str, ...]], search: Search) -> Matches:
        for start in starts:
            fs, parts = self._at(start)
            status = fs.lstat(parts)
            if stat.S_ISDIR(status.st_mode):
                for found, size in walk(fs, parts):
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


def _kind(status: os.stat_result) -> Kind:
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "directory"
    return "link" if stat.S_ISLNK(status.st_mode) else "other"
