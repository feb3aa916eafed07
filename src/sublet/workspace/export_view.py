"""The tree a client sees: ``/workspace`` beneath the lent directory, and ``/meta`` in memory (DESIGN 4.6).

The root itself lists these two and nothing changes in it. The real path of the workspace appears nowhere.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.confined_fs import ConfinedFs, StatVfs
from sublet.workspace.confined_write import WritableFs, WriteFile
from sublet.workspace.viewpath import Parts, refused, split

WORKSPACE: Final = b"workspace"
META: Final = b"meta"
MAX_META_FILES: Final = 64
MAX_META_BYTES: Final = 1 << 20

_META_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}\Z")
_DIRECTORY_MODE: Final = stat.S_IFDIR | 0o555
_FILE_MODE: Final = stat.S_IFREG | 0o444


class OpenFile(Protocol):
    """A file handle that a view gave out."""

    def read(self, size: int, offset: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``, none at the end."""

    def stat(self) -> os.stat_result:
        """Return the file's status."""

    def close(self) -> None:
        """Close the handle."""


class OpenDirectory(Protocol):
    """A directory handle that a view gave out."""

    def stat(self) -> os.stat_result:
        """Return the directory's status."""

    def entries(self) -> Iterator[tuple[bytes, os.stat_result]]:
        """Yield what is left of the entries."""

    def close(self) -> None:
        """Close the handle."""


@dataclass(frozen=True, slots=True)
class _MetaFile:
    """One file of ``/meta`` as it was when it was opened or set."""

    data: bytes
    changed_at: int

    def read(self, size: int, offset: int) -> bytes:
        return self.data[offset : offset + size]

    def stat(self) -> os.stat_result:
        return _status(_FILE_MODE, len(self.data), self.changed_at)

    def close(self) -> None:
        """Nothing is held."""


class _Listing:
    """An open virtual directory."""

    def __init__(self, status: os.stat_result, entries: list[tuple[bytes, os.stat_result]]) -> None:
        self._status = status
        self._entries = iter(entries)

    def stat(self) -> os.stat_result:
        return self._status

    def entries(self) -> Iterator[tuple[bytes, os.stat_result]]:
        return self._entries

    def close(self) -> None:
        """Nothing is held."""


class ExportView:
    """One lease's tree, as it can be read.

    Args:
        workspace: what lies below ``/workspace``.
        meta: the files of ``/meta`` by name.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a meta file's name or size.
    """

    def __init__(self, workspace: ConfinedFs, meta: Mapping[str, bytes]) -> None:
        self._fs = workspace
        self._meta: dict[bytes, _MetaFile] = {}
        self._made_at = int(time.time())
        for name, data in meta.items():
            self.set_meta(name, data)

    def set_meta(self, name: str, data: bytes) -> None:
        """Set the content of ``/meta/<name>``; who has the file open keeps what it was.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` for a bad name, more than 1 MiB, or more than 64 files.
        """
        key = name.encode("utf-8", "surrogatepass")
        full = key not in self._meta and len(self._meta) >= MAX_META_FILES
        if not _META_NAME.match(name) or len(data) > MAX_META_BYTES or full:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"the meta file {name[:40]!r} has a bad name, more than {MAX_META_BYTES} bytes, or is one too many",
                "Use a plain name and keep the end of a long log only.",
            )
        self._meta[key] = _MetaFile(bytes(data), int(time.time()))

    def close(self) -> None:
        """Close the workspace; every later operation there fails."""
        self._fs.close()

    def lstat(self, path: bytes) -> os.stat_result:
        """Return the status of a name, a link's own if it is one."""
        parts = split(path)
        if parts and parts[0] == WORKSPACE:
            return self._fs.lstat(parts[1:])
        return self._virtual_stat(parts)

    def stat(self, path: bytes) -> os.stat_result:
        """Return the status of what a name leads to."""
        parts = split(path)
        return self._fs.stat(parts[1:]) if parts[:1] == [WORKSPACE] else self._virtual_stat(parts)

    def readlink(self, path: bytes) -> bytes:
        """Return a link's target."""
        parts = split(path)
        if parts[:1] == [WORKSPACE]:
            return self._fs.readlink(parts[1:])
        self._virtual_stat(parts)
        raise refused(errno.EINVAL)

    def realpath(self, path: bytes) -> bytes:
        """Return the path in its plain form; nothing is looked up."""
        return b"/" + b"/".join(split(path))

    def open_read(self, path: bytes) -> OpenFile:
        """Open a file for reading."""
        parts = split(path)
        if parts[:1] == [WORKSPACE]:
            return self._fs.open_read(parts[1:])
        if len(parts) == 2 and parts[0] == META and parts[1] in self._meta:
            return self._meta[parts[1]]
        self._virtual_stat(parts)
        raise refused(errno.EISDIR)

    def open_directory(self, path: bytes) -> OpenDirectory:
        """Open a directory for listing."""
        parts = split(path)
        if parts[:1] == [WORKSPACE]:
            return self._fs.open_directory(parts[1:])
        status = self._virtual_stat(parts)
        if not parts:
            entries = [(WORKSPACE, self._fs.lstat(())), (META, self._virtual_stat([META]))]
        elif parts == [META]:
            entries = [(name, file.stat()) for name, file in sorted(self._meta.items())]
        else:
            raise refused(errno.ENOTDIR)
        return _Listing(status, entries)

    def statvfs(self) -> StatVfs:
        """Return the room that is left in the workspace."""
        return self._fs.statvfs()

    def _virtual_stat(self, parts: Parts) -> os.stat_result:
        if not parts or parts == [META]:
            return _status(_DIRECTORY_MODE, 0, self._made_at)
        if len(parts) == 2 and parts[0] == META and parts[1] in self._meta:
            return self._meta[parts[1]].stat()
        raise refused(errno.ENOENT)


class WritableView(ExportView):
    """One lease's tree, as it can be read and, below ``/workspace``, changed."""

    def __init__(self, workspace: WritableFs, meta: Mapping[str, bytes]) -> None:
        super().__init__(workspace, meta)
        self._writable = workspace

    def open_write(self, path: bytes, flags: int, mode: int) -> WriteFile:
        """Open a file for writing; see ``WritableFs.open_write``."""
        return self._writable.open_write(_below_workspace(path), flags, mode)

    def set_attributes(
        self,
        path: bytes,
        *,
        size: int | None = None,
        mode: int | None = None,
        times: tuple[int, int] | None = None,
        follow: bool = True,
    ) -> None:
        """Change size, permission bits or times; see ``WritableFs.set_attributes``."""
        self._writable.set_attributes(_below_workspace(path), size=size, mode=mode, times=times, follow=follow)

    def remove(self, path: bytes) -> None:
        """Remove a name that is no directory."""
        self._writable.remove(_below_workspace(path))

    def mkdir(self, path: bytes, mode: int) -> None:
        """Create a directory."""
        self._writable.mkdir(_below_workspace(path), mode)

    def rmdir(self, path: bytes) -> None:
        """Remove an empty directory."""
        self._writable.rmdir(_below_workspace(path))

    def symlink(self, target: bytes, path: bytes) -> None:
        """Create a link."""
        self._writable.symlink(target, _below_workspace(path))

    def link(self, old: bytes, new: bytes) -> None:
        """Give a regular file a second name."""
        self._writable.link(_below_workspace(old), _below_workspace(new))

    def rename(self, old: bytes, new: bytes, *, replace: bool) -> None:
        """Rename a file, link or directory."""
        self._writable.rename(_below_workspace(old), _below_workspace(new), replace=replace)


def _below_workspace(path: bytes) -> list[bytes]:
    parts = split(path)
    if parts[:1] != [WORKSPACE]:
        raise refused(errno.EACCES)
    return parts[1:]


def _status(mode: int, size: int, changed_at: int) -> os.stat_result:
    links = 2 if stat.S_ISDIR(mode) else 1
    return os.stat_result((mode, 0, 0, links, os.getuid(), os.getgid(), size, changed_at, changed_at, changed_at))
