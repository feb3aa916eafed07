"""What holds an agent to its limits: a control group where there is one, and the size of its scratch directory.

The supervisor asks for a cage by its ``Limiter`` interface; what the cage can't hold is left to the agent's guard.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import structlog

from sublet.disk.disk_usage import measure_opened
from sublet.protocol.names import MalformedName, parse_plain_name
from sublet.workspace.sandbox.cgroups import Cgroups, Group

MEASURE_SHARE = 20
"""A scratch directory is measured for at most one part in so many of the time."""
CLOSED_SCRATCH = "closed_scratch"
"""What an agent meets that keeps its scratch directory from being counted."""

log = structlog.get_logger(__name__)


class Cages:
    """Makes a cage per task.

    Args:
        cgroups: what the machine can do; None to do without.
    """

    def __init__(self, cgroups: Cgroups | None) -> None:
        self._cgroups = cgroups if cgroups is not None and cgroups.items else None

    @property
    def means(self) -> str:
        """By what limits are held, for people."""
        if self._cgroups is None:
            return "rlimits and the guard's watch"
        rest = {"memory", "processes", "cpu_time"} - self._cgroups.items
        return self._cgroups.version + (" and the guard's watch" if rest else "")

    def open(
        self,
        task: str,
        *,
        memory_bytes: int | None,
        processes: int | None,
        cpu_seconds: int | None,
        scratch: Path,
        scratch_bytes: int | None,
    ) -> Cage:
        """Return the cage of one task; ``close`` it always. Blocks a little.

        Args:
            task: its id.
            memory_bytes: of all its processes together; None, here and below, for no limit.
            processes: how many may run at once.
            cpu_seconds: of all its processes together.
            scratch: its private directory.
            scratch_bytes: what that may hold.
        """
        group: Group | None = None
        if self._cgroups is not None:
            try:
                group = self._cgroups.open(
                    parse_plain_name(task), memory_bytes=memory_bytes, processes=processes, cpu_seconds=cpu_seconds
                )
            except (OSError, MalformedName) as error:
                log.warning("no control group could be made; the guard watches instead", reason=str(error))
        return Cage(group, scratch, scratch_bytes)

    def reap(self) -> int:
        """Kill and remove what an earlier process of this daemon left, and return of how many tasks that was."""
        return self._cgroups.reap() if self._cgroups is not None else 0

    def close(self) -> None:
        """Leave nothing behind of our own."""
        if self._cgroups is not None:
            self._cgroups.close()


class Cage:
    """The limits of one task while it runs. Every method blocks a little: call it in a thread."""

    def __init__(self, group: Group | None, scratch: Path, scratch_bytes: int | None) -> None:
        self._group = group
        self._scratch = scratch
        self._scratch_bytes = scratch_bytes
        self._measure_at = 0.0
        self.held: frozenset[str] = frozenset(group.items if group is not None else ())
        """Which limits it holds; the guard has to watch the others."""

    @property
    def descriptors(self) -> Sequence[int]:
        """What a process writes ``0`` into to come in."""
        return self._group.descriptors if self._group is not None else ()

    def exceeded(self) -> str | None:
        """Return which limit was met, of those that the cage holds and of ``scratch``.

        A scratch directory that can't be counted, though its owner's rights were given back, is one that is too full:
        ``CLOSED_SCRATCH``.
        """
        if self._group is not None and (item := self._group.exceeded()) is not None:
            return item
        began = time.monotonic()
        if self._scratch_bytes is None or began < self._measure_at:
            return None
        used = measure_opened(self._scratch, enough=self._scratch_bytes)
        took = time.monotonic() - began
        self._measure_at = began + took * MEASURE_SHARE
        if used.size > self._scratch_bytes:
            return "scratch"
        return CLOSED_SCRATCH if used.closed else None

    def kill(self) -> None:
        """Kill everything in it."""
        if self._group is not None:
            self._group.kill()

    def close(self) -> None:
        """Kill what is left and remove it."""
        if self._group is not None:
            with contextlib.suppress(OSError):
                self._group.close()
