"""Large blocks lie beside the heaps, whatever was freed before, and threads share few heaps."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sublet.daemon.health.heap import free_reader

SCRIPT = """
import ctypes, sys
from sublet.daemon.health import heap
from sublet.daemon.health.heap_bounds import LARGE_BLOCK_BYTES, bound_heaps

if sys.argv[1] == "bound":
    bound_heaps()
library = ctypes.CDLL(None)
library.mallinfo2.restype = heap._Mallinfo
for _ in range(3):
    freed = bytes(4 * LARGE_BLOCK_BYTES)
    del freed
before = library.mallinfo2().hblks
blocks = [bytes(LARGE_BLOCK_BYTES) for _ in range(8)]
print(library.mallinfo2().hblks - before)
"""


@pytest.mark.skipif(free_reader() is None, reason="this C library does not tell what lies in its heaps")
@pytest.mark.parametrize(("how", "beside"), [("bound", 8), ("unbound", 0)])
def test_a_large_block_is_one_of_its_own_whatever_was_freed_before(how: str, beside: int) -> None:
    told = subprocess.run([sys.executable, "-c", SCRIPT, how], check=True, capture_output=True, text=True, timeout=60)
    assert int(told.stdout) == beside
