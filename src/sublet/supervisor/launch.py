"""A program to start, and what confines it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol


class Closed(Protocol):
    """A path that is there and that a program does not see, or can't change."""

    @property
    def path(self) -> Path:
        """Where it is: an absolute path."""

    @property
    def how(self) -> Literal["hidden directory", "hidden file", "read-only"]:
        """What a program meets there: nothing, or something that it can't change."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A process to start: never a shell line. ``cwd``, ``writable`` and ``readable`` exist; nothing else is visible."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    writable: Sequence[Path]
    readable: Sequence[Path]
    allow_network: bool
    scratch_bytes: int | None = None
    """What its ``/tmp`` may hold, where it has one of its own."""
    closed: Sequence[Closed] = ()
    """What it does not see, or can't change, of what it sees otherwise."""


class Sandbox(Protocol):
    """Turns a launch into the argv that confines it; the daemon passes in the real one."""

    enforced: frozenset[str]
    """Which of ``cwd_only``, ``allow_network``, ``allow_exec`` this sandbox really enforces."""

    def wrap(self, launch: Launch) -> Sequence[str]:
        """Return the argv to run for ``launch``."""
