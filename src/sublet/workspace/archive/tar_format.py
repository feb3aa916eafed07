"""Trees as tar streams in the POSIX (pax) format, without any I/O: entries to bytes, and bytes to entries.

Headers are those of Python's own ``tarfile``. Reading is ours, since what a stranger sends must be bounded before any
of it is kept or written: a header that claims gigabytes of attributes, a name that climbs, a device, an endless list.
"""

from __future__ import annotations

import hashlib
import secrets
import tarfile
from dataclasses import dataclass
from typing import Final, Literal, Protocol

BLOCK: Final = tarfile.BLOCKSIZE
MAX_NAME_BYTES: Final = 4_096
MAX_COMPONENT_BYTES: Final = 255
MAX_DEPTH: Final = 202
"""Components of a name: as deep as the walk over an export goes, below the name of the resource."""
MAX_ATTRIBUTE_BYTES: Final = 16 * 1024
"""Of one extended header: a name and a target of the longest kind, and times."""
MAX_SECONDS: Final = 1 << 40
MAX_NAMES_BYTES: Final = 64 << 20
"""Bytes of all names of one stream, with something for each component: whoever unpacks it keeps them."""
COMPONENT_BYTES: Final = 16
END: Final = bytes(2 * BLOCK)

NANO: Final = 1_000_000_000
ENCODING: Final = ("utf-8", "surrogateescape")
KNOWN_ATTRIBUTES: Final = frozenset({b"path", b"linkpath", b"size", b"mtime", b"hdrcharset"})

Kind = Literal["file", "directory", "symlink", "hardlink"]
Parts = tuple[bytes, ...]

_TYPES: Final[dict[Kind, bytes]] = {
    "file": tarfile.REGTYPE,
    "directory": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
    "hardlink": tarfile.LNKTYPE,
}
KINDS: Final[dict[bytes, Kind]] = {kind_type: kind for kind, kind_type in _TYPES.items()}


class MalformedTar(Exception):
    """The stream is no tar stream of the kind that is exchanged here, or passes a bound; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of a tree.

    ``target`` is a link's text, or the name of the entry that a hard link is another name of; ``size`` is that of a
    file's content, which follows. ``mode`` are permission bits.
    """

    parts: Parts
    kind: Kind
    mode: int = 0o644
    size: int = 0
    modified_ns: int = 0
    target: bytes = b""


@dataclass(frozen=True, slots=True)
class TarLimits:
    """What one stream may hold: names, bytes of all files, and bytes of one."""

    max_entries: int
    max_bytes: int
    max_file_bytes: int


class TarSink(Protocol):
    """What a reader tells what it finds."""

    def begin(self, entry: Entry) -> None:
        """Take the next entry; a file's content follows by ``data``."""

    def data(self, piece: memoryview) -> None:
        """Take the next piece of the file's content; it is valid during the call only."""

    def end(self) -> None:
        """The entry is complete."""


def header(entry: Entry) -> bytes:
    """Return the header blocks of ``entry``; a file's content and ``padding`` follow them."""
    info = tarfile.TarInfo(b"/".join(entry.parts).decode(*ENCODING))
    info.type = _TYPES[entry.kind]
    info.mode = entry.mode
    info.size = entry.size
    info.linkname = entry.target.decode(*ENCODING)
    seconds, rest = divmod(entry.modified_ns, NANO)
    if rest or not 0 <= seconds < 1 << 33:
        # as text, since a float does not tell nanoseconds
        whole = f"-{-seconds - 1}.{NANO - rest:09d}" if seconds < 0 and rest else f"{seconds}.{rest:09d}"
        info.pax_headers = {"mtime": whole}
    else:
        info.mtime = seconds
    return info.tobuf(tarfile.PAX_FORMAT, *ENCODING)


def padding(size: int) -> bytes:
    """Return what follows content of ``size`` bytes."""
    return bytes(-size % BLOCK)


def checked_parts(name: bytes) -> Parts:
    """Return the components of a relative name that can only lead down.

    Raises:
        MalformedTar: it is empty, absolute, holds ``.``, ``..``, an empty component or a NUL, or is too long or deep.
    """
    parts = tuple(name.split(b"/"))
    if len(name) > MAX_NAME_BYTES or len(parts) > MAX_DEPTH or b"\0" in name:
        raise MalformedTar("a name is too long, too deep or holds a NUL")
    if any(part in (b"", b".", b"..") or len(part) > MAX_COMPONENT_BYTES for part in parts):
        raise MalformedTar("a name is absolute, climbs, or has an empty or overlong component")
    return parts


class NameDigests:
    """Names as 16 bytes each, however long they are; nobody can make two that are the same."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)

    def of(self, parts: Parts) -> bytes:
        """Return what stands for a name."""
        return hashlib.blake2b(b"/".join(parts), digest_size=16, key=self._key).digest()
