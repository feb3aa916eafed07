"""Applies or undoes a staged result and dies by SIGKILL at the n-th change of the file system: one order per line.

Started as a program with the base directory of a ``StagedBench``; an order is ``apply N`` or ``undo N``, or the same
of two directories as ``apply-all N`` or ``undo-all N``; the answer is ``killed`` or ``done``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sublet.workspace.changes import apply_dir, transaction
from support.staged import KEY, OTHER_KEY, StagedBench

POINTS = [
    *((os, name) for name in ("rename", "replace", "mkdir", "unlink", "rmdir", "fsync", "symlink", "fchmod", "link")),
    *((transaction, name) for name in ("exchange", "rename_noreplace")),
    (apply_dir, "copy_content"),
]
"""The functions through which everything that matters after a crash is changed."""


class Countdown:
    """Does something instead of the n-th call of any of ``POINTS``, which are back in place after the context."""

    def __init__(self, calls: int, then: Callable[[], None]) -> None:
        self._left = calls
        self._then = then
        self._kept = [(owner, name, getattr(owner, name)) for owner, name in POINTS]

    def __enter__(self) -> Countdown:
        for owner, name, function in self._kept:
            setattr(owner, name, self._counted(function))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, function in self._kept:
            setattr(owner, name, function)

    @property
    def reached(self) -> bool:
        """Whether there were that many calls."""
        return self._left < 0

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                self._then()
            return function(*args, **named)

        return call


def perform(bench: StagedBench, what: str) -> None:
    """Apply or undo, whatever the conflicts."""
    if what == "apply-all":
        bench.applier.apply_all(dict.fromkeys((KEY, OTHER_KEY), bench.rules), partial=True)
    elif what == "undo-all":
        bench.applier.undo_all((KEY, OTHER_KEY))
    elif what == "apply":
        bench.applier.apply(KEY, bench.rules, partial=True, allow_mass_deletion=True)
    else:
        bench.applier.undo(KEY)


def main() -> None:
    """Serve orders until standard input ends."""
    bench = StagedBench(Path(sys.argv[1]))
    for line in sys.stdin:
        what, number = line.split()
        child = os.fork()
        if child == 0:
            with Countdown(int(number), lambda: os.kill(os.getpid(), signal.SIGKILL)):
                perform(bench, what)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print("killed" if os.WIFSIGNALED(status) else "done" if status == 0 else "failed", flush=True)


if __name__ == "__main__":
    main()
