"""Gives memory that nothing uses any more back to the system.

The C library keeps what is freed for the next call, page by page between what is still in use. After a burst, such as
a flood that was cut or a look at a large directory, that would be hundreds of megabytes for good. This service looks
how much is free while the daemon is at work, and has it given back where it stays free.

What was given back is still counted as free by the C library, whether it was used and freed again since then or not. So
the part of the free bytes that is in memory is taken from two sides: what is free beyond what was free at the last time
was in use then, and so in memory; and what the process holds beyond what is in use has grown by what is free in memory.
The first alone misses what was used and freed again, the second what was in use when something was given back under a
burst that went on. An idle daemon pays nothing but a look at the clock.

Weak: only the heaps of glibc are looked at. Objects in reference cycles are freed when Python's collector gets to them.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import anyio
import anyio.to_thread
import structlog

LOOK_SECONDS: Final = 0.7
"""How often is looked; what is free at two looks in a row is given back."""
LOOK_SHARE: Final = 0.01
"""Of a core that looking may take: the C library walks through all that is free."""
WORK_SECONDS: Final = 0.005
"""Of the processor: a process that has used less since the last look has not taken enough to be worth one."""
SLACK_BYTES: Final = 4 << 20
"""Bytes that may stay free: every program needs some again."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")

log = structlog.get_logger(__name__)


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of ``malloc.h``."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


class Bytes(NamedTuple):
    """What the C library tells of its heaps."""

    free: int
    used: int


class Heap:
    """The heaps of this process.

    Args:
        free: returns the bytes that are free and in use in them; None where that can't be told.
        give_back: gives back what it can, whatever thread it is called in.
        look_seconds: between two looks.
        used: returns the seconds of the processor that the process has used.
        resident: returns the bytes of memory that the process holds.
        loaded: looks whether something was loaded.
    """

    def __init__(
        self,
        free: Callable[[], Bytes] | None = None,
        give_back: Callable[[], None] | None = None,
        look_seconds: float = LOOK_SECONDS,
        used: Callable[[], float] = time.process_time,
        resident: Callable[[], int] | None = None,
        loaded: Callable[[], object] = lambda: None,
    ) -> None:
        self._free = free or free_reader()
        self._give_back = give_back or trim
        self._look_seconds = look_seconds
        self._used = used
        self._resident = resident or resident_bytes
        self._loaded = loaded
        self._used_before = 0.0
        self._gone = 0
        self._least: int | None = None
        self._before = 0

    async def serve(self) -> None:
        """Look until cancelled."""
        if self._free is None:
            log.info("this C library does not tell what is free in its heaps, so it is left to give that back itself")
        took = 0.0
        while True:
            await anyio.sleep(max(self._look_seconds, took / LOOK_SHARE))
            used = self._used()
            # What was free at the last look is looked at once more, whatever has happened since.
            if used - self._used_before >= WORK_SECONDS or self._before >= SLACK_BYTES:
                self._used_before = used
                self._loaded()
                if self._free is None:
                    continue
                begun = time.thread_time()
                await self.look()
                took = time.thread_time() - begun

    async def look(self) -> bool:
        """Give back what stays free, and tell whether there was enough of it."""
        assert self._free is not None
        free, used = self._free()
        beside = self._resident() - used
        if self._least is None:
            may_go = free  # nothing was given back yet
        else:
            self._gone, self._least = min(self._gone, free), min(self._least, beside)
            may_go = min(free, max(free - self._gone, beside - self._least))
        stays, self._before = min(may_go, self._before), may_go
        if stays < SLACK_BYTES:
            return False
        await anyio.to_thread.run_sync(self._give_back)
        self._gone, used = self._free()
        self._least, self._before = self._resident() - used, 0
        return True


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE


def free_reader() -> Callable[[], Bytes] | None:
    """Return what tells the bytes that are free and in use in the heaps of this process; None where nothing does."""
    library = ctypes.CDLL(None)
    mallinfo = getattr(library, "mallinfo2", None)
    if mallinfo is None or not hasattr(library, "malloc_trim"):
        return None
    mallinfo.restype = _Mallinfo

    def read() -> Bytes:
        told = mallinfo()
        return Bytes(int(told.fordblks), int(told.uordblks + told.hblkhd))

    return read


def trim() -> None:
    """Give back whole pages that are free, wherever they lie."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
