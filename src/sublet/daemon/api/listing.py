"""How much of what a peer named is listed: the first of it, within a number and within bytes.

A path may have 4 KiB, and four times as much once it is cleaned for display. So a number of names alone bounds nothing
that is stored with a delegation and sent with each answer about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

MAX_LIST_BYTES: Final = 256 << 10
"""Of the names in one list of a report: some four thousand usual ones."""

T = TypeVar("T")


def listed(found: Iterable[T], most: int, name: Callable[[T], str] = str, most_bytes: int = MAX_LIST_BYTES) -> list[T]:
    """Return the first of ``found``.

    Args:
        found: what there is to be listed.
        most: how many at most.
        name: returns what a peer has named in one of them.
        most_bytes: of all names together, in UTF-8.
    """
    kept: list[T] = []
    used = 0
    for one in found:
        used += len(name(one).encode("utf-8", "surrogatepass"))
        if len(kept) >= most or used > most_bytes:
            break
        kept.append(one)
    return kept
