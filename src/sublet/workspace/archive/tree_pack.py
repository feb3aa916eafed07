"""An exported tree as a tar stream: walked by descriptors, never following a link, exactly what the rules show."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final

from sublet.workspace.archive.tar_format import END, Entry, Parts, header, padding
from sublet.workspace.confined.fs import OPEN_FILE
from sublet.workspace.export import ViewRules
from sublet.workspace.view.walk import Budget, Directory, Unread, walk

CHUNK_BYTES: Final = 256 * 1024
"""Bytes that are made in one step, about."""
READ_BYTES: Final = 1024 * 1024
"""Read of a file at once; a smaller one is sent with the size it has when it is read."""

Wanted = Callable[[Parts], bool]


class TreeChanged(Exception):
    """A file became shorter while it was read, so that the stream can't be completed."""


class AllVisible:
    """The rules of a tree that is all ours: nothing is hidden, locked or guarded."""

    def hidden(self, parts: object) -> bool:
        """Tell that no name is hidden."""
        return False

    def hides(self) -> bool:
        """Tell that nothing is hidden."""
        return False

    def notable(self, name: bytes) -> bool:
        """Tell that there are no rules."""
        return False

    def secret(self, parts: object) -> bool:
        """Tell that no name is hidden."""
        return False

    def left_out(self, parts: object) -> bool:
        """Tell that no name is left out."""
        return False

    def directory_only(self, parts: object) -> bool:
        """Tell that every name may be anything."""
        return False

    def locked(self, parts: object) -> bool:
        """Tell that no name is locked."""
        return False

    def read_only(self, parts: object) -> bool:
        """Tell that every name is lent for writing."""
        return False

    def only_adds(self) -> bool:
        """Tell that everything may be removed."""
        return False

    def kept(self, parts: object) -> bool:
        """Tell that every name may be changed."""
        return False

    def checked(self, parts: object) -> bool:
        """Tell that no name is looked at."""
        return False

    def draft(self, parts: object) -> bool:
        """Tell that no name is still being written by another."""
        return False

    def may_be_directory(self, parts: object) -> bool:
        """Tell that every name may be a directory."""
        return True

    def bars_links(self, parts: object) -> bool:
        """Tell that links may be anywhere."""
        return False

    def packed(self, parts: object) -> bool:
        """Tell that no directory is special."""
        return False

    def without_repository(self) -> AllVisible:
        """Return the same: repositories are nothing special here."""
        return self

    def guards_below(self, parts: object) -> bool:
        """Tell that no rule is anchored anywhere."""
        return False


class TreePacker:
    """Makes one tar stream of several trees, each below a name of its own.

    ``unread`` are the names that could not be read and so are not in the stream.

    Args:
        budget: bounds of all walks together.
        wanted: which names go with it, by their names in the stream; all by default.
    """

    def __init__(self, budget: Budget, wanted: Wanted | None = None) -> None:
        self._budget = budget
        self._wanted = wanted
        self._first_names: dict[tuple[int, int], Parts] = {}
        self.unread: list[Parts] = []

    def tree(self, name: bytes, root_fd: int, rules: ViewRules) -> Generator[bytes]:
        """Yield the stream of one tree; ``root_fd`` stays the caller's and open meanwhile.

        Raises:
            WalkOverrunError: when the budget is spent.
            TreeChanged: as it says.
            OSError: where the root can't be listed, or a disk fails.
        """
        out: list[bytes] = []
        size = 0
        status = os.fstat(root_fd)
        for piece in self._pieces(name, root_fd, rules, status):
            out.append(piece)
            size += len(piece)
            if size >= CHUNK_BYTES:
                yield b"".join(out)
                out, size = [], 0
        yield b"".join(out)

    def files(self, name: bytes, files: Mapping[bytes, bytes], modified_ns: int) -> Iterator[bytes]:
        """Yield the stream of a read-only directory whose files are in memory."""
        yield header(Entry((name,), "directory", 0o755, modified_ns=modified_ns))
        for file, content in sorted(files.items()):
            yield header(Entry((name, file), "file", 0o444, len(content), modified_ns))
            yield content + padding(len(content))

    def copies(self, name: bytes, copies: Mapping[tuple[bytes, ...], bytes], modified_ns: int) -> Iterator[bytes]:
        """Yield the stream of read-only files that lie in a tree that was packed, but are in memory."""
        for parts, content in copies.items():
            yield header(Entry((name, *parts), "file", 0o444, len(content), modified_ns))
            yield content + padding(len(content))

    def end(self) -> bytes:
        """Return what ends the stream."""
        return END

    def _pieces(self, name: bytes, root_fd: int, rules: ViewRules, status: os.stat_result) -> Iterator[bytes]:
        if self._wanted is None:
            yield header(_entry((name,), "directory", status))
        for found in walk(root_fd, rules, self._budget):
            if isinstance(found, Unread):
                self.unread.append((name, *found.parts))
                continue
            for entry, st in found.entries:
                parts = (name, *found.parts, entry)
                if self._wanted is None or self._wanted(parts):
                    yield from self._one(parts, found, entry, st)

    def _one(self, parts: Parts, directory: Directory, name: bytes, st: os.stat_result) -> Iterator[bytes]:
        if stat.S_ISDIR(st.st_mode):
            yield header(_entry(parts, "directory", st))
        elif stat.S_ISLNK(st.st_mode):
            try:
                target = os.readlink(name, dir_fd=directory.fd)
            except OSError:
                return  # gone or replaced since it was listed
            yield header(Entry(parts, "symlink", 0o777, modified_ns=st.st_mtime_ns, target=target))
        elif stat.S_ISREG(st.st_mode):
            first = self._first_names.setdefault((st.st_dev, st.st_ino), parts) if st.st_nlink > 1 else parts
            if first != parts:
                yield header(Entry(parts, "hardlink", _mode(st), modified_ns=st.st_mtime_ns, target=b"/".join(first)))
                return
            yield from self._file(parts, directory, name)

    def _file(self, parts: Parts, directory: Directory, name: bytes) -> Iterator[bytes]:
        try:
            fd = os.open(name, os.O_RDONLY | OPEN_FILE, dir_fd=directory.fd)
        except OSError:
            self.unread.append(parts)
            return
        try:
            st = os.fstat(fd)
            if not stat.S_ISREG(st.st_mode):
                return
            content = os.read(fd, READ_BYTES)
            if st.st_size <= READ_BYTES:
                yield header(_entry(parts, "file", st, len(content)))
                yield content
                yield padding(len(content))
                return
            yield header(_entry(parts, "file", st, st.st_size))
            left = st.st_size
            while left:
                if not content:
                    raise TreeChanged("a file became shorter while it was read")
                yield content
                left -= len(content)
                content = os.read(fd, min(READ_BYTES, left)) if left else b""
            yield padding(st.st_size)
        finally:
            os.close(fd)


def _entry(parts: Parts, kind: str, st: os.stat_result, size: int = 0) -> Entry:
    return Entry(parts, "file" if kind == "file" else "directory", _mode(st), size, st.st_mtime_ns)


def _mode(st: os.stat_result) -> int:
    return st.st_mode & 0o777
