"""When something is sent again (federation "重试策略"): four times in all, later each time, never all at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after which pauses.

    Args:
        max_retries: attempts after the first one.
        base_delay_ms: milliseconds before the first of them.
        max_delay_ms: milliseconds that a pause has at most.
        backoff_multiplier: how much longer each is than the one before.
    """

    max_retries: int
    base_delay_ms: int
    max_delay_ms: int
    backoff_multiplier: float

    def pauses(self, chance: Callable[[], float]) -> Iterator[float]:
        """Yield the pauses in seconds, each between half of what it would be and all of it.

        Args:
            chance: returns a number from 0 to 1.
        """
        delay = float(self.base_delay_ms)
        for _ in range(self.max_retries):
            yield min(delay, self.max_delay_ms) / 1000 * (0.5 + chance() / 2)
            delay *= self.backoff_multiplier


DEFAULT_RETRY_POLICY: Final = RetryPolicy(3, 100, 5000, 2.0)
ONCE: Final = RetryPolicy(0, 100, 5000, 2.0)
"""For what is said again anyway, such as a heartbeat."""
