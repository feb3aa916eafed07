"""How much of the machine an agent may use, who holds it to that, and how it is told (DESIGN 4.9)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, get_args

from sublet.supervisor.agent_config import LimitsConfig

Limit: TypeAlias = Literal["memory", "processes", "cpu_time", "output", "scratch"]
"""The words of ACCEPT's ``sandbox_enforced``."""
LIMITS: tuple[Limit, ...] = get_args(Limit)


class Cage(Protocol):
    """Holds the processes of one task. Every method may block a little."""

    held: frozenset[str]
    """Which limits it holds; the guard has to watch the others."""

    @property
    def descriptors(self) -> Sequence[int]:
        """What a process writes ``0`` into to come in."""

    def exceeded(self) -> str | None:
        """Return the limit that was met, or None."""

    def kill(self) -> None:
        """Kill everything in it."""

    def close(self) -> None:
        """Kill what is left and remove the cage."""


class Limiter(Protocol):
    """Makes cages; the daemon passes in the real one."""

    @property
    def means(self) -> str:
        """By what limits are held, for people."""

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
        """Return the cage of one task."""


class NoCage:
    """A cage that holds nothing, so that the guard watches everything."""

    held: frozenset[str] = frozenset()
    descriptors: Sequence[int] = ()

    def exceeded(self) -> None:
        """``Cage.exceeded``."""

    def kill(self) -> None:
        """``Cage.kill``."""

    def close(self) -> None:
        """``Cage.close``."""


class GuardAlone:
    """The limiter of a machine that has nothing to offer."""

    means = "rlimits and the guard's watch"

    def open(self, task: str, **bounds: object) -> NoCage:
        """``Limiter.open``."""
        return NoCage()


def enforced_limits(limits: LimitsConfig) -> frozenset[Limit]:
    """Return which limits are set, and so enforced: by the cage, by the guard, or where the output is read."""
    return frozenset(limit for limit in LIMITS if bound(limits, limit) is not None)


def bound(limits: LimitsConfig, limit: Limit) -> int | None:
    """Return what ``limits`` says of ``limit``, in bytes, seconds or a plain number; None for no limit."""
    match limit:
        case "memory":
            return limits.memory_bytes
        case "processes":
            return limits.processes
        case "cpu_time":
            return limits.cpu_seconds
        case "output":
            return limits.output_bytes
        case "scratch":
            return limits.scratch_bytes


def told(limits: LimitsConfig, met: str) -> str:
    """Return what an agent did that met a limit, as the end of a sentence that begins with it."""
    match met:
        case "memory":
            return f"used more than {_size(limits.memory_bytes)} of memory and was ended"
        case "processes":
            return f"ran more than {limits.processes:,} processes at once and was ended"
        case "cpu_time":
            return f"used more than {limits.cpu_seconds:,} s of processor time and was ended"
        case "output":
            return f"printed more than {_size(limits.output_bytes)} and was ended"
        case "closed_scratch":
            return (
                f"kept directories of its temporary space from being counted, which may hold no more than "
                f"{_size(limits.scratch_bytes)}, and was ended"
            )
        case _:
            return f"filled more than {_size(limits.scratch_bytes)} of temporary space and was ended"


def _size(count: int | None) -> str:
    value, units = float(count or 0), ["TiB", "GiB", "MiB", "KiB", "bytes"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop()
    return f"{value:.1f} {units[-1]}".replace(".0 ", " ")
