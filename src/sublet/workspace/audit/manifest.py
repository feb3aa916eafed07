"""What a snapshot holds, file by file, beside the commit: it spares reading files that have not changed since."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from sublet.disk.durable import write_whole

MAX_MANIFESTS: Final = 64
"""Manifests kept per workspace; an older snapshot's is rebuilt from its commit."""

_MAGIC = b"sublet-manifest-1 "


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
    """One file: its mode as git has it, the id of its blob, and its stamp where that may be trusted."""

    mode: int
    blob: str
    stamp: Stamp | None


Manifest = Mapping[bytes, Record]


def save(directory: Path, commit: str, manifest: Manifest) -> None:
    """Write the manifest of ``commit`` whole or not at all, and forget the oldest beyond ``MAX_MANIFESTS``."""
    body = b"".join(_lines(manifest))
    write_whole(directory / commit, _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    kept = sorted(directory.iterdir(), key=lambda p: p.stat().st_mtime_ns)
    for old in kept[:-MAX_MANIFESTS]:
        old.unlink()


def load(directory: Path, commit: str) -> dict[bytes, Record] | None:
    """Return the manifest of ``commit``, or None where there is none that is whole."""
    with contextlib.suppress(FileNotFoundError):
        head, _, body = (directory / commit).read_bytes().partition(b"\n")
        if head == _MAGIC + hashlib.sha256(body).hexdigest().encode():
            return dict(_parsed(body))
    return None


def _lines(manifest: Manifest) -> Iterator[bytes]:
    for path, (mode, blob, stamp) in manifest.items():
        fields = " ".join(map(str, stamp)) if stamp else "- - - -"
        yield f"{mode:o} {blob} {fields} ".encode() + path + b"\0"


def _parsed(body: bytes) -> Iterator[tuple[bytes, Record]]:
    for line in body.split(b"\0")[:-1]:
        mode, blob, size, modified, changed, inode, path = line.split(b" ", 6)
        stamp = None if size == b"-" else Stamp(int(size), int(modified), int(changed), int(inode))
        yield path, Record(int(mode, 8), blob.decode(), stamp)
