"""Kills a process at a line of ours that it is about to run: a real SIGKILL, at each place where one could come."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any


def killed_at(line: int, traced: Sequence[str], work: Callable[[], object]) -> bool:
    """Run ``work`` in a process that kills itself at the ``line``-th line that it runs; tell if it came so far.

    Args:
        line: from 1 on.
        traced: parts of the paths of the modules whose lines count.
        work: is run in a process of its own, which has all that this one has.

    Raises:
        RuntimeError: ``work`` failed by itself.
    """
    pid = os.fork()
    if pid == 0:
        left = line

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if not any(part in frame.f_code.co_filename for part in traced):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        work()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) != 0:
        raise RuntimeError("what was to be killed failed by itself")
    return os.WIFSIGNALED(status)
