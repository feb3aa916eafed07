"""Keeping Python's collector from looking through what an audit holds, while it holds it.

A snapshot of a large directory is some hundred thousand objects, none of them in a cycle. While they come, a full
collection looks through all of them again and again, and nothing else of the process goes on meanwhile, its event loop
included. The young generations are collected as ever.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NEVER: Final = 1 << 30
_lock = threading.Lock()
_holders = 0
_threshold = 0


@contextmanager
def no_full_collections() -> Iterator[None]:
    """Have nothing collected but the young generations; from several threads at once, until the last of them is done.

    For what is bounded in time: cycles that have become old stay until then.
    """
    global _holders, _threshold
    with _lock:
        _holders += 1
        if _holders == 1:
            first, second, _threshold = gc.get_threshold()
            gc.set_threshold(first, second, _NEVER)
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                first, second, _ = gc.get_threshold()
                gc.set_threshold(first, second, _threshold)
