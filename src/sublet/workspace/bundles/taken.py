"""What a bundle holds, as git lists it after the import: its bounds, and what it changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sublet.protocol.patterns import Pattern
from sublet.workspace.bundles.listing import Extent, MalformedListing, section

_MODE: Final = Pattern(r"[0-7]{6}\Z")
_ID: Final = Pattern(r"[0-9a-f]{40}\Z")
_WORDS: Final = 5


@dataclass(frozen=True, slots=True)
class Changed:
    """One path that differs: what it becomes, None where it is gone."""

    path: bytes
    mode: int | None
    blob: str


@dataclass(frozen=True, slots=True)
class Taken:
    """One imported bundle.

    ``commit`` is its commit, ``names`` the number of names in its tree, ``more_bytes`` by how much its files are larger
    than those of the commit it was compared with. ``changes`` are in the order of the paths, ``sizes`` those of their
    blobs in bytes, and ``directories`` those above them that were there before.
    """

    commit: str
    names: int
    more_bytes: int
    changes: list[Changed]
    sizes: dict[str, int]
    directories: set[bytes]

    @classmethod
    def read(cls, commit: str, listed: Iterator[bytes], *, compared: bool) -> Taken:
        """Return what git has listed: where it has ``compared``, the changes, the tree, and the tree before; else the
        tree alone.

        Raises:
            MalformedListing: it can't be read.
        """
        if not compared:
            extent = Extent.read(listed)
            return cls(commit, extent.names, extent.total, [], {}, set())
        changes = list(_changes(section(listed)))
        blobs = frozenset(change.blob for change in changes if change.mode is not None)
        after = Extent.read(section(listed), blobs)
        above = frozenset(path for change in changes for path in parents(change.path))
        before = Extent.read(section(listed), paths=above)
        return cls(commit, after.names, after.total - before.total, changes, after.sizes, before.directories)


def parents(path: bytes) -> Iterator[bytes]:
    """Yield the directories above a path, the highest first."""
    parts = path.split(b"/")
    for end in range(1, len(parts)):
        yield b"/".join(parts[:end])


def _changes(fields: Iterator[bytes]) -> Iterator[Changed]:
    for head in fields:
        path = next(fields, b"")
        words = head.decode("ascii", "replace").split(" ")
        if len(words) != _WORDS or not path or not _MODE.match(words[1]) or not _ID.match(words[3]):
            raise MalformedListing("git tells a change that can't be read")
        yield Changed(path, None if words[4] == "D" else int(words[1], 8), words[3])
