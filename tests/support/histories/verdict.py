"""What came of a history: what was lost, what differs, and after how long all was equal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

TOLD: Final = 12
"""Of what is not right, what is printed."""


@dataclass
class Verdict:
    """What came of a history.

    Args:
        operations: how many were acknowledged.
        refused: how many were not, for which nothing is promised.
        lost: what a member that may have it does not show, as text.
        promises: the same, each told once however many members lack it: the kind of promise and its step.
        differ: how members show different things, as text.
        errors: operations that ended with an internal error.
        seconds: from the last repair until all was equal; None where it never was in time.
        operating_seconds: the longest that one operation took.
    """

    operations: int = 0
    refused: int = 0
    lost: list[str] = field(default_factory=list)
    promises: set[tuple[str, int]] = field(default_factory=set)
    differ: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float | None = None
    operating_seconds: float = 0.0

    @property
    def right(self) -> bool:
        """Whether all was equal in time, and nothing was lost."""
        return self.seconds is not None and not self.errors

    def ways(self) -> set[str]:
        """Return in which ways it is not right, in words that other histories have as well."""
        found = {f"lost {kind}" for kind, _ in self.promises}
        found |= {"errors"} if self.errors else set()
        return found | ({"differs"} if self.differ and not found else set())

    def __str__(self) -> str:
        if self.right:
            return f"equal after {self.seconds:.1f} s, {self.operations} acknowledged, {self.refused} not"
        told = [f"lost: {one}" for one in self.lost]
        told += [f"differs: {one}" for one in self.differ]
        told += [f"error: {one}" for one in self.errors]
        more = [f"and {len(told) - TOLD} more"] if len(told) > TOLD else []
        return "\n  ".join([f"NOT RIGHT, {self.operations} acknowledged", *told[:TOLD], *more])
