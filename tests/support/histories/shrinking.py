"""Shortens a history that fails: steps are left out, many at once and then few, as long as it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from support.histories.steps import History, Step

ROOM: Final = "room"


async def shrink(
    history: History, fails: Callable[[History], Awaitable[bool]], seconds: float, told: Callable[[History], None]
) -> History:
    """Return the shortest history that was found in a time.

    Args:
        history: fails.
        fails: plays one, and tells whether it fails in the same way.
        seconds: after which no further one is tried.
        told: called with each shorter one.
    """
    end = time.monotonic() + seconds
    best = history
    parts = 2
    while len(best.steps) > 1 and parts <= len(best.steps):
        size = -(-len(best.steps) // parts)
        for begin in range(0, len(best.steps), size):
            if time.monotonic() > end:
                return best
            left = [*best.steps[:begin], *best.steps[begin + size :]]
            shorter = best.with_steps(without_orphans(left))
            if shorter.steps and any(step.do == ROOM for step in shorter.steps) and await fails(shorter):
                best = shorter
                told(best)
                parts = min(max(parts - 1, 2), len(best.steps))
                break
        else:
            if size == 1:
                return best
            parts = min(parts * 2, len(best.steps))
    return best


def without_orphans(steps: Sequence[Step]) -> list[Step]:
    """Return the steps without those that refer to one that is not there."""
    kept: dict[int, Step] = {}
    for step in steps:
        if all(step.args[name] in kept for name in ("room", "of", "reply", "thread") if name in step.args):
            kept[step.number] = step
    return list(kept.values())
