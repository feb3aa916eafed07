"""What a snapshot holds, name by name: it spares reading files that have not changed since.

A manifest lies beside the commit of its snapshot. Git keeps neither directories nor permissions, so the commit also
names a blob that lists them: a manifest that was pruned is built from both again. The landed first version listed files
only; its manifests are still read, and what they do not say is not compared.

Manifests are read and written line by line, and each name is kept once: an executor decides how many names there are
and how long their paths.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from sublet.disk.durable import write_whole_pieces
from sublet.workspace.audit.path_tree import PathTree
from sublet.workspace.audit.shadow_git import DIRECTORY, EXECUTABLE, PLAIN, SYMLINK

MAX_MANIFESTS: Final = 64
"""Manifests kept per workspace; an older snapshot's is rebuilt from its commit."""

ROOT: Final = b"."
"""The name of the directory itself; a manifest without it says nothing of directories."""

_MAGIC = b"sublet-manifest-2 "
_FIRST_MAGIC = b"sublet-manifest-1 "
_HEAD_BYTES: Final = len(_MAGIC) + 64 + 1
_PIECE_BYTES: Final = 256 * 1024
_LINE_ID_BYTES: Final = 16
_USUAL: Final = {PLAIN: 0o644, EXECUTABLE: 0o755}
"""Permissions that a listing leaves out."""


class Stamp(NamedTuple):
    """What the file system says of a file when its content has settled; an equal stamp means equal content.

    ``changed_ns`` is the change time, which no system call sets: an executor can put back a modification time only.
    """

    size: int
    modified_ns: int
    changed_ns: int
    inode: int

    @classmethod
    def of(cls, st: os.stat_result) -> Stamp:
        """Return the stamp of ``st``."""
        return cls(st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino)


class Record(NamedTuple):
    """One name: its mode as git has it, the id of its blob, its stamp where that may be trusted, and its permissions.

    A directory has neither blob nor stamp. ``permissions`` are None for links, and where they are not known.
    """

    mode: int
    blob: str
    stamp: Stamp | None
    permissions: int | None = None

    @property
    def is_directory(self) -> bool:
        """Whether the name is a directory, which a snapshot keeps no content of."""
        return self.mode == DIRECTORY

    def same(self, other: Record | None) -> bool:
        """Tell whether both hold the same, permissions included; times are not compared."""
        return other is not None and (self.mode, self.blob, self.permissions) == (
            other.mode,
            other.blob,
            other.permissions,
        )


Manifest = Mapping[bytes, Record]


def knows_directories(manifest: Manifest) -> bool:
    """Tell whether the manifest says which directories there were."""
    return ROOT in manifest


def file_of(record: Record | None) -> Record | None:
    """Return ``record`` where it is of a file or link, else None."""
    return None if record is None or record.mode == DIRECTORY else record


class Listing:
    """What git does not keep of ``manifest``: its directories, and permissions that are not the usual ones."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = PathTree.of(manifest)

    def __iter__(self) -> Iterator[bytes]:
        for path, record in self._manifest.ordered():
            if path == ROOT or (record.mode != SYMLINK and record.permissions != _USUAL.get(record.mode)):
                yield b"%o %o %s\0" % (record.mode, record.permissions or 0, path)


def with_listing(files: Manifest, listed: bytes) -> PathTree[Record]:
    """Return the manifest of ``files``, as git has them, with what ``listing`` said.

    Raises:
        ValueError: ``listed`` is none.
    """
    found = PathTree((path, record._replace(permissions=_USUAL.get(record.mode))) for path, record in files.items())
    for line in listed.split(b"\0")[:-1]:
        mode, permissions, path = line.split(b" ", 2)
        if int(mode, 8) == DIRECTORY:
            found[path] = Record(DIRECTORY, "", None, None if path == ROOT else int(permissions, 8))
        elif path in found:
            found[path] = found[path]._replace(permissions=int(permissions, 8))
    return found


def save(directory: Path, commit: str, manifest: Manifest) -> None:
    """Write the manifest of ``commit`` whole or not at all, and forget the oldest beyond ``MAX_MANIFESTS``."""
    digest = hashlib.sha256()
    for line in _lines(manifest):
        digest.update(line)
    head = _MAGIC + digest.hexdigest().encode() + b"\n"
    write_whole_pieces(directory / commit, chain((head,), _lines(manifest)))
    kept = sorted(directory.iterdir(), key=lambda p: p.stat().st_mtime_ns)
    for old in kept[:-MAX_MANIFESTS]:
        old.unlink()


def load(directory: Path, commit: str) -> PathTree[Record] | None:
    """Return the manifest of ``commit``, or None where there is none that is whole."""
    with _opened(directory, commit) as (magic, file):
        if magic == _MAGIC:
            return PathTree(_parsed(_split(file)))
        return PathTree(_parsed_first(_split(file))) if magic == _FIRST_MAGIC else None


def load_differing(directory: Path, before: str, after: str) -> tuple[PathTree[Record], PathTree[Record]] | None:
    """Return of two manifests the records whose lines differ, without making records of all the others.

    None where either is not whole, or of the first version.
    """
    with _opened(directory, before) as (old_magic, old), _opened(directory, after) as (new_magic, new):
        if old_magic != _MAGIC or new_magic != _MAGIC:
            return None
        old_ids, new_ids = {_line_id(line) for line in _split(old)}, {_line_id(line) for line in _split(new)}
        same = old_ids & new_ids
        del old_ids, new_ids
        return _others(old, same), _others(new, same)


def _others(file: BinaryIO, same: set[bytes]) -> PathTree[Record]:
    file.seek(_HEAD_BYTES)
    found = PathTree(_parsed(line for line in _split(file) if _line_id(line) not in same))
    found[ROOT] = Record(DIRECTORY, "", None)
    return found


def _line_id(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=_LINE_ID_BYTES).digest()


@contextlib.contextmanager
def _opened(directory: Path, commit: str) -> Iterator[tuple[bytes, BinaryIO]]:
    """Hold a manifest that is whole, at its first line, with the first word of it, which is empty where none is."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context((directory / commit).open("rb"))
        except FileNotFoundError:
            yield b"", stack.enter_context(BytesIO())
            return
        head, digest = file.read(_HEAD_BYTES), hashlib.sha256()
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
        file.seek(_HEAD_BYTES)
        known = (magic for magic in (_MAGIC, _FIRST_MAGIC) if head == magic + digest.hexdigest().encode() + b"\n")
        yield next(known, b""), file


def _split(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines from here on."""
    rest = b""
    while piece := file.read(_PIECE_BYTES):
        *lines, rest = (rest + piece).split(b"\0")
        yield from lines


def _lines(manifest: Manifest) -> Iterator[bytes]:
    for path, (mode, blob, stamp, permissions) in manifest.items():
        fields = " ".join(map(str, stamp)) if stamp else "- - - -"
        allowed = "-" if permissions is None else f"{permissions:o}"
        yield f"{mode:o} {blob or '-'} {allowed} {fields} ".encode() + path + b"\0"


def _parsed(lines: Iterable[bytes]) -> Iterator[tuple[bytes, Record]]:
    directories: dict[bytes, Record] = {}
    for line in lines:
        mode, blob, allowed, size, modified, changed, inode, path = line.split(b" ", 7)
        if blob == b"-" and size == b"-":  # one record for all of them: there may be many
            record = directories.get(line[: -len(path)])
            if record is None:
                record = Record(int(mode, 8), "", None, None if allowed == b"-" else int(allowed, 8))
                directories[line[: -len(path)]] = record
            yield path, record
            continue
        stamp = None if size == b"-" else Stamp(int(size), int(modified), int(changed), int(inode))
        permissions = None if allowed == b"-" else int(allowed, 8)
        yield path, Record(int(mode, 8), "" if blob == b"-" else blob.decode(), stamp, permissions)


def _parsed_first(lines: Iterable[bytes]) -> Iterator[tuple[bytes, Record]]:
    for line in lines:
        mode, blob, size, modified, changed, inode, path = line.split(b" ", 6)
        stamp = None if size == b"-" else Stamp(int(size), int(modified), int(changed), int(inode))
        yield path, Record(int(mode, 8), blob.decode(), stamp)
