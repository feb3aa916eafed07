"""What git lists of a tree, read record by record from a file, so that a large tree is never in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Final

MAX_LISTED_BYTES: Final = 128 << 20
"""What git may say of all names of a tree; it goes to a file."""
MAX_RECORD_BYTES: Final = 16 * 1024
"""Of one name: a path as long as the kernel takes it, and what is said of it."""
_PIECE: Final = 256 * 1024
_MAX_SIZE_DIGITS: Final = 20
"""Of the size of a file: more than 64 bits hold is none."""


class MalformedListing(ValueError):
    """Git said something that can't be read."""


@dataclass(slots=True)
class Extent:
    """How many names a tree has, and how many bytes its files come to.

    ``sizes`` are those of the blobs, and ``directories`` the paths of the directories, that were asked for.
    """

    names: int = 0
    total: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    directories: set[bytes] = field(default_factory=set)

    @classmethod
    def read(
        cls, listed: Iterable[bytes], blobs: frozenset[str] = frozenset(), paths: frozenset[bytes] = frozenset()
    ) -> Extent:
        """Return what ``git ls-tree -r -t -l -z`` has listed.

        Args:
            listed: its records.
            blobs: those whose sizes are kept.
            paths: those that are kept where they are directories.

        Raises:
            MalformedListing: a record can't be read, or git has not got what the tree names.
        """
        extent = cls()
        for record in listed:
            head, _, path = record.partition(b"\t")
            words = head.split()
            if len(words) != 4:
                raise MalformedListing("git lists what can't be read")
            extent.names += 1
            if words[3] == b"-":
                if path in paths and words[1] == b"tree":
                    extent.directories.add(path)
                continue
            if not words[3].isdigit() or len(words[3]) > _MAX_SIZE_DIGITS:
                raise MalformedListing("a tree names what is not there")
            size = int(words[3])
            extent.total += size
            blob = words[2].decode("ascii", "replace")
            if blob in blobs:
                extent.sizes[blob] = size
        return extent


def section(listed: Iterator[bytes]) -> Iterator[bytes]:
    """Yield records up to an empty one, which is taken too, or to the end."""
    for record in listed:
        if not record:
            return
        yield record


def records(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the records of a file, each of which a NUL ends.

    Raises:
        MalformedListing: one is longer than ``MAX_RECORD_BYTES``, or the last is cut.
    """
    rest = b""
    while piece := file.read(_PIECE):
        *whole, rest = (rest + piece).split(b"\0")
        yield from whole
        if len(rest) > MAX_RECORD_BYTES:
            raise MalformedListing("git lists a name that is too long")
    if rest:
        raise MalformedListing("git's listing is cut")
