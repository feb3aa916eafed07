"""The tree a client sees: a directory for each that is lent, and ``/meta`` in memory (DESIGN 4.6).

One lent directory is ``/workspace``; further ones lie beside it under their own names. The root itself lists these and
nothing changes in it. Each is confined beneath its own descriptor, and no real path appears anywhere.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern
from sublet.workspace.confined.file import WriteFile
from sublet.workspace.confined.fs import ConfinedFs, StatVfs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import META as META_NAME
from sublet.workspace.git.take import Looking
from sublet.workspace.viewpath import Parts, refused, split

META: Final = META_NAME.encode()
MAX_META_FILES: Final = 64
MAX_META_BYTES: Final = 1 << 20

_RESOURCE_NAME = Pattern(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
_META_NAME = Pattern(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}\Z")
_DIRECTORY_MODE: Final = stat.S_IFDIR | 0o555
_FILE_MODE: Final = stat.S_IFREG | 0o444


Copies = Mapping[tuple[bytes, ...], bytes]


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

    def entries_or_pauses(self) -> Iterator[tuple[bytes, os.stat_result] | None]:
        """Yield what is left of the entries, and None in place of some that are not shown, so that others go on."""

    def close(self) -> None:
        """Close the handle."""


@dataclass(frozen=True, slots=True)
class _MemoryFile:
    """One file of ``/meta`` as it was when it was opened or set, or a copy of a hidden one."""

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

    def entries_or_pauses(self) -> Iterator[tuple[bytes, os.stat_result] | None]:
        return self._entries

    def close(self) -> None:
        """Nothing is held."""


class _WithCopies:
    """An open directory, and the copies that are served in it."""

    def __init__(self, directory: OpenDirectory, copies: list[tuple[bytes, os.stat_result]]) -> None:
        self._directory = directory
        self._entries: Iterator[tuple[bytes, os.stat_result] | None] = itertools.chain(
            copies, directory.entries_or_pauses()
        )

    def stat(self) -> os.stat_result:
        return self._directory.stat()

    def entries_or_pauses(self) -> Iterator[tuple[bytes, os.stat_result] | None]:
        return self._entries

    def close(self) -> None:
        self._directory.close()


class ExportView:
    """One lease's tree, as it can be read.

    Args:
        trees: what lies below ``/<name>``, by name, in the order in which they are listed; at least one.
        meta: the files of ``/meta`` by name.
        copies: contents that are served, read-only, under hidden names of a directory, by the path below it.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for a meta file's name or size, or a resource's name.
    """

    def __init__(
        self, trees: Mapping[str, ConfinedFs], meta: Mapping[str, bytes], copies: Mapping[str, Copies] | None = None
    ) -> None:
        for name in trees:
            if not _RESOURCE_NAME.match(name) or name == META_NAME:
                raise SubletError(
                    LocalCode.INVALID_ARGUMENT,
                    f"a resource can't be called {name[:40]!r}",
                    f"Use lower-case letters, digits, dots, dashes and underscores, and not {META_NAME!r}.",
                )
        self._trees = {name.encode(): tree for name, tree in trees.items()}
        self._meta: dict[bytes, _MemoryFile] = {}
        self._made_at = int(time.time())
        for name, data in meta.items():
            self.set_meta(name, data)
        self._copies: dict[tuple[bytes, ...], _MemoryFile] = {
            (name.encode(), *parts): _MemoryFile(data, self._made_at)
            for name, held in (copies or {}).items()
            for parts, data in held.items()
        }

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
        self._meta[key] = _MemoryFile(bytes(data), int(time.time()))

    @property
    def meta_files(self) -> dict[bytes, bytes]:
        """The files of ``/meta`` as they are now, by name."""
        return {name: file.data for name, file in self._meta.items()}

    @property
    def made_at(self) -> int:
        """When the view was made, in Unix seconds."""
        return self._made_at

    def close(self) -> None:
        """Close every directory; every later operation there fails."""
        for tree in self._trees.values():
            tree.close()

    def lstat(self, path: bytes) -> os.stat_result:
        """Return the status of a name, a link's own if it is one."""
        parts = split(path)
        if parts and (tree := self._trees.get(parts[0])) is not None:
            if self._copies and (copy := self._copies.get(tuple(parts))) is not None:
                return copy.stat()
            return tree.lstat(parts[1:])
        return self._virtual_stat(parts)

    def stat(self, path: bytes) -> os.stat_result:
        """Return the status of what a name leads to."""
        parts = split(path)
        if (copy := self._copies.get(tuple(parts))) is not None:
            return copy.stat()
        tree = self._tree(parts)
        return tree.stat(parts[1:]) if tree is not None else self._virtual_stat(parts)

    def readlink(self, path: bytes) -> bytes:
        """Return a link's target."""
        parts = split(path)
        tree = self._tree(parts)
        if tree is not None:
            return tree.readlink(parts[1:])
        self._virtual_stat(parts)
        raise refused(errno.EINVAL)

    def realpath(self, path: bytes) -> bytes:
        """Return the path in its plain form; nothing is looked up."""
        return b"/" + b"/".join(split(path))

    def open_read(self, path: bytes) -> OpenFile:
        """Open a file for reading."""
        parts = split(path)
        if self._copies and (copy := self._copies.get(tuple(parts))) is not None:
            return copy
        tree = self._tree(parts)
        if tree is not None:
            return tree.open_read(parts[1:])
        if len(parts) == 2 and parts[0] == META and parts[1] in self._meta:
            return self._meta[parts[1]]
        self._virtual_stat(parts)
        raise refused(errno.EISDIR)

    def open_directory(self, path: bytes) -> OpenDirectory:
        """Open a directory for listing."""
        parts = split(path)
        tree = self._tree(parts)
        if tree is not None:
            directory = tree.open_directory(parts[1:])
            held = [(at[-1], copy.stat()) for at, copy in self._copies.items() if at[:-1] == tuple(parts)]
            return _WithCopies(directory, held) if held else directory
        status = self._virtual_stat(parts)
        if not parts:
            entries = [(name, tree.lstat(())) for name, tree in self._trees.items()]
            entries.append((META, self._virtual_stat([META])))
        elif parts == [META]:
            entries = [(name, file.stat()) for name, file in sorted(self._meta.items())]
        else:
            raise refused(errno.ENOTDIR)
        return _Listing(status, entries)

    def statvfs(self, path: bytes = b"/") -> StatVfs:
        """Return the room that is left where ``path`` lies; above the directories, in the first that can be changed."""
        if (tree := self._tree(split(path))) is not None:
            return tree.statvfs()
        trees = self._trees.values()
        return next((tree for tree in trees if not tree.read_only), next(iter(trees))).statvfs()

    def _tree(self, parts: Parts) -> ConfinedFs | None:
        return self._trees.get(parts[0]) if parts else None

    def _virtual_stat(self, parts: Parts) -> os.stat_result:
        if not parts or parts == [META]:
            return _status(_DIRECTORY_MODE, 0, self._made_at)
        if len(parts) == 2 and parts[0] == META and parts[1] in self._meta:
            return self._meta[parts[1]].stat()
        raise refused(errno.ENOENT)


class WritableView(ExportView):
    """One lease's tree, as it can be read and, below the directories that are lent for writing, changed."""

    def open_write(self, path: bytes, flags: int, mode: int) -> WriteFile:
        """Open a file for writing; see ``WritableFs.open_write``."""
        tree, parts = self._writable(path)
        return tree.open_write(parts, flags, mode)

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
        tree, parts = self._writable(path)
        tree.set_attributes(parts, size=size, mode=mode, times=times, follow=follow)

    def remove(self, path: bytes) -> None:
        """Remove a name that is no directory."""
        tree, parts = self._writable(path)
        tree.remove(parts)

    def mkdir(self, path: bytes, mode: int) -> None:
        """Create a directory."""
        tree, parts = self._writable(path)
        tree.mkdir(parts, mode)

    def rmdir(self, path: bytes) -> None:
        """Remove an empty directory."""
        tree, parts = self._writable(path)
        tree.rmdir(parts)

    def symlink(self, target: bytes, path: bytes) -> None:
        """Create a link."""
        tree, parts = self._writable(path)
        tree.symlink(target, parts)

    def look(self, old: bytes, new: bytes) -> Looking | None:
        """Return what has to look at ``old`` before it can become ``new``: ``WritableFs.look``.

        Raises:
            OSError: as ``link`` and ``rename``.
        """
        tree, before, after = self._same(old, new)
        return tree.look(before, after)

    def link(self, old: bytes, new: bytes, looked: Looking | None = None) -> None:
        """Give a regular file a second name.

        Raises:
            OSError: ``EXDEV`` where the names lie in two of the lent directories; and as ``WritableFs.link``.
        """
        tree, before, after = self._same(old, new)
        tree.link(before, after, looked)

    def rename(self, old: bytes, new: bytes, looked: Looking | None = None, *, replace: bool) -> None:
        """Rename a file, link or directory.

        Raises:
            OSError: ``EXDEV`` where the names lie in two of the lent directories, so that the client copies instead;
                and as ``WritableFs.rename``.
        """
        tree, before, after = self._same(old, new)
        tree.rename(before, after, looked, replace=replace)

    def _same(self, old: bytes, new: bytes) -> tuple[WritableFs, Parts, Parts]:
        """Return the one tree that both names lie in."""
        source, before = self._writable(old)
        target, after = self._writable(new)
        if source is not target:
            raise refused(errno.EXDEV)
        return source, before, after

    def _writable(self, path: bytes) -> tuple[WritableFs, Parts]:
        """Return the tree that ``path`` lies in, and the path in it.

        Raises:
            OSError: ``EACCES`` for the view's own names, and for all of a directory that is lent for reading only.
        """
        parts = split(path)
        tree = self._tree(parts)
        if not isinstance(tree, WritableFs):
            raise refused(errno.EACCES)
        return tree, parts[1:]


def _status(mode: int, size: int, changed_at: int) -> os.stat_result:
    links = 2 if stat.S_ISDIR(mode) else 1
    return os.stat_result((mode, 0, 0, links, os.getuid(), os.getgid(), size, changed_at, changed_at, changed_at))
