"""Bounds on what the C library keeps of memory that is freed, set before the daemon has threads.

A daemon has a few dozen threads and gets bodies of megabytes from others. By itself glibc gives each thread a heap of
its own, and once a large block was freed it takes the next ones from these heaps, between small ones that stay.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

MAX_ARENAS: Final = 2
"""Heaps that all threads share."""
LARGE_BLOCK_BYTES: Final = 256 << 10
"""A block of so many bytes is always one of its own, which goes back to the system as soon as it is freed."""
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Both of ``malloc.h``."""


def bound_heaps() -> None:
    """Set both bounds; where there is another C library, it has no such call and no such heaps."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, MAX_ARENAS)
        library.mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
