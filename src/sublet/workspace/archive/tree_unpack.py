"""Writes what a tar stream brings into confined trees, and nowhere else."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import Final

from sublet.workspace.archive.tar_format import Entry, Parts, checked_parts
from sublet.workspace.confined.bounds import readable_directory, readable_file
from sublet.workspace.confined.file import WriteFile
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.viewpath import refused

SPARSE_BYTES: Final = 4_096
"""Zeros that are worth a hole."""
_FATAL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EBADF})
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL

Locate = Callable[[Parts], tuple[WritableFs, Parts]]
OnRefused = Callable[[Parts, str], None]


class TreeWriter:
    """Makes the entries of a stream; a ``TarSink``.

    What stands where a file or link comes is replaced; a directory stays. Modes and times of directories are set at
    the end, when nothing more is written into them. ``digests`` are the SHA-256 of the files' contents by name.

    Args:
        locate: returns the tree of a name, and the name in it.
        on_refused: is told of each entry that could not be made, and why; by default that ends the stream.
        digesting: whether ``digests`` are wanted.
        keeps_modes: whether modes say only which files are executable, as git has them, so that a file that replaces
            another keeps the rest of its permissions.
    """

    def __init__(
        self,
        locate: Locate,
        on_refused: OnRefused | None = None,
        *,
        digesting: bool = True,
        keeps_modes: bool = False,
    ) -> None:
        self._locate = locate
        self._on_refused = on_refused
        self._digesting = digesting
        self._entry: Entry | None = None
        self._file: WriteFile | None = None
        self._at = 0
        self._keeps_modes = keeps_modes
        self._replaced: os.stat_result | None = None
        self._digest = hashlib.sha256()
        self._directories: list[tuple[bytes, int, int]] = []
        self.digests: dict[Parts, bytes] = {}

    def begin(self, entry: Entry) -> None:
        """``TarSink.begin``.

        Raises:
            OSError: it could not be made, and nobody is told of that, or nothing else could be made either.
        """
        self._entry, self._file = entry, None
        try:
            self._make(entry)
        except OSError as exc:
            self._refuse(entry, exc)

    def data(self, piece: memoryview) -> None:
        """``TarSink.data``."""
        if self._file is None:
            return
        if self._digesting:
            self._digest.update(piece)
        # A hole reads as zeros and takes no room; the end of the file is set when it is complete.
        if len(piece) < SPARSE_BYTES or bytes(piece).count(0) != len(piece):
            self._file.write(piece, self._at)
        self._at += len(piece)

    def end(self) -> None:
        """``TarSink.end``."""
        entry, file = self._entry, self._file
        self._entry = self._file = None
        if entry is None or file is None:
            return
        try:
            if file.stat().st_size != entry.size:
                file.truncate(entry.size)
            file.set_mode(readable_file(_kept_mode(entry, self._replaced)))
        finally:
            file.close()
        if self._digesting:
            self.digests[entry.parts] = self._digest.digest()
        fs, parts = self._locate(entry.parts)
        fs.set_modified(parts, entry.modified_ns)

    def finish(self) -> None:
        """Set modes and times of the directories, the deepest first."""
        for _ in self.finishing():
            pass

    def finishing(self) -> Iterator[None]:
        """Do as ``finish``, one directory after another."""
        self._directories.sort(key=lambda directory: directory[0].count(b"/"), reverse=True)
        for name, mode, modified_ns in self._directories:
            parts = tuple(name.split(b"/"))
            fs, inner = self._locate(parts)
            try:
                if inner:
                    fs.set_attributes(inner, mode=readable_directory(mode), follow=False)
                    fs.set_modified(inner, modified_ns)
            except OSError as exc:
                self._refuse(Entry(parts, "directory"), exc)
            yield

    def remove(self, name: Parts) -> None:
        """Remove a name; a directory that still holds something stays.

        Raises:
            OSError: as ``begin``.
        """
        try:
            fs, parts = self._locate(name)
            if stat.S_ISDIR(fs.lstat(parts).st_mode):
                fs.rmdir(parts)
            else:
                fs.remove(parts)
        except FileNotFoundError:
            return
        except OSError as exc:
            if exc.errno != errno.ENOTEMPTY:
                self._refuse(Entry(name, "file"), exc)

    def close(self) -> None:
        """Close what is open; for a stream that ends early. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _make(self, entry: Entry) -> None:
        fs, parts = self._locate(entry.parts)
        if entry.kind == "directory":
            self._make_directory(fs, parts, entry)
            return
        if not parts:
            raise refused(errno.EISDIR)
        replaced = _clear(fs, parts)
        self._replaced = replaced if self._keeps_modes and replaced and stat.S_ISREG(replaced.st_mode) else None
        if entry.kind == "file":
            self._file = fs.open_write(parts, _NEW_FILE, 0o600)
            self._at, self._digest = 0, hashlib.sha256()
        elif entry.kind == "symlink":
            fs.symlink(entry.target, parts)
            fs.set_modified(parts, entry.modified_ns)
        else:
            other, first = self._locate(checked_parts(entry.target))
            if other is not fs:
                raise refused(errno.EXDEV)
            fs.link(first, parts)

    def _make_directory(self, fs: WritableFs, parts: Parts, entry: Entry) -> None:
        if parts:
            try:
                there = stat.S_ISDIR(fs.lstat(parts).st_mode)
            except FileNotFoundError:
                there = False
            else:
                if not there:
                    fs.remove(parts)
            if not there:
                fs.mkdir(parts, 0o700)
        self._directories.append((b"/".join(entry.parts), entry.mode, entry.modified_ns))

    def _refuse(self, entry: Entry, exc: OSError) -> None:
        if self._on_refused is None or exc.errno in _FATAL:
            raise exc
        self._on_refused(entry.parts, os.strerror(exc.errno or 0))


def _kept_mode(entry: Entry, replaced: os.stat_result | None) -> int:
    """Return the permissions of a file: those of the one it replaces, but for whether it is executable."""
    if replaced is None:
        return entry.mode
    before = replaced.st_mode & 0o777
    if bool(before & stat.S_IXUSR) == bool(entry.mode & stat.S_IXUSR):
        return before
    if not entry.mode & stat.S_IXUSR:
        return before & ~0o111
    return before | before >> 2 & 0o111 | stat.S_IXUSR


def _clear(fs: WritableFs, parts: Parts) -> os.stat_result | None:
    """Remove what is there, but for a directory: its content was to be removed by name; return what that was."""
    try:
        there = fs.lstat(parts)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(there.st_mode):
        fs.rmdir(parts)
    else:
        fs.remove(parts)
    return there
