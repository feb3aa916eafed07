"""Names of a timeline's shards: one document a month, with sub-shards of a bounded number of refs (DESIGN 6.3).

``2026-11``, ``2026-11-001``, ``2026-11-002``, ...: in the order of time as in the order of text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sublet.protocol.patterns import Pattern

REFS_PER_SHARD: Final = 4_096
"""After so many refs the next sub-shard begins, so that no document grows with its room."""
MAX_SUB_SHARD: Final = 999
_SHARD = Pattern(r"(\d{4}-(?:0[1-9]|1[0-2]))(?:-(\d{3}))?\Z")


def is_shard(text: str) -> bool:
    """Tell whether ``text`` names a shard; a first sub-shard has no number."""
    match = _SHARD.match(text) if text.isascii() else None
    return match is not None and match[2] != "000"


def month_of(year: int, month: int) -> str:
    """Return the name of a month's first shard."""
    return f"{year:04}-{month:02}"


def month(shard: str) -> str:
    """Return the month that a shard belongs to, which is also its first shard."""
    return shard[:7]


def number(shard: str) -> int:
    """Return which sub-shard of its month a shard is, from 0."""
    return int(shard[8:] or 0)


def sub_shard(of_month: str, index: int) -> str:
    """Return the name of a month's sub-shard ``index``, from 0.

    Raises:
        ValueError: beyond ``MAX_SUB_SHARD``.
    """
    if not 0 <= index <= MAX_SUB_SHARD:
        raise ValueError("a month has no more sub-shards")
    return of_month if index == 0 else f"{of_month}-{index:03}"


def previous_month(of_month: str) -> str:
    """Return the month before."""
    year, index = int(of_month[:4]), int(of_month[5:7])
    return month_of(year - 1, 12) if index == 1 else month_of(year, index - 1)


def months_back(of_month: str) -> Iterator[str]:
    """Yield ``of_month`` and every month before it, without end until the year 1."""
    while of_month >= "0001-02":
        yield of_month
        of_month = previous_month(of_month)
