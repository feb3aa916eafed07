"""The delegator's own index where it is split: a shared part, and a small file that says what of it has changed.

Only the delegator's is read so, to know which entries are its own. One that an executor gives is refused (``index``).
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sublet.workspace.viewpath import refused

LINK: Final = b"link"
"""The extension that names the shared part."""
_WORD: Final = 8
_WORD_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class KnownEntry:
    """One entry: its path, its mode with the name of its object, and whether git does not look at the file."""

    path: bytes
    blob: bytes
    unseen: bool


def merged(shared: list[KnownEntry], own: list[KnownEntry], bitmaps: bytes) -> list[KnownEntry]:
    """Return the entries that a split index stands for.

    Args:
        shared: the entries of the shared part.
        own: those of the index file; the first ones, without a path, replace entries of the shared part.
        bitmaps: which entries of the shared part are deleted, and which are replaced.

    Raises:
        OSError: ``EACCES`` for what no git writes.
    """
    if not bitmaps:
        return [*shared, *own]
    deleted, rest = _bits(bitmaps, len(shared))
    replaced, _ = _bits(rest, len(shared))
    found: list[KnownEntry | None] = list(shared)
    replacing = iter(own)
    for number in sorted(replaced):
        entry = next(replacing, None)
        if entry is None or entry.path:
            raise refused(errno.EACCES)
        found[number] = dataclasses.replace(entry, path=shared[number].path)
    for number in deleted:
        found[number] = None
    return [*(entry for entry in found if entry is not None), *replacing]


def _bits(raw: bytes, count: int) -> tuple[set[int], bytes]:
    """Return which of the first ``count`` bits of a compressed bitmap are set, and what comes after it.

    Raises:
        OSError: ``EACCES`` where it is cut short.
    """
    words = int.from_bytes(raw[4:8], "big")
    end = 8 + words * _WORD
    if len(raw) < end + 4:
        raise refused(errno.EACCES)
    return set(_set_bits(raw[8:end], count)), raw[end + 4 :]


def _set_bits(words: bytes, count: int) -> Iterator[int]:
    at = bit = 0
    while at < len(words) and bit < count:
        marker = int.from_bytes(words[at : at + _WORD], "big")
        at += _WORD
        running, literals = marker >> 1 & 0xFFFFFFFF, marker >> 33
        stop = bit + running * _WORD_BITS
        if marker & 1:
            yield from range(bit, min(stop, count))
        bit = stop
        for _ in range(literals):
            if at >= len(words) or bit >= count:
                break
            word = int.from_bytes(words[at : at + _WORD], "big")
            at += _WORD
            yield from (bit + place for place in range(_WORD_BITS) if word >> place & 1 and bit + place < count)
            bit += _WORD_BITS
