"""How long and how much is kept without anybody asking."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much is kept without anybody asking.

    Args:
        max_age_seconds: what ended earlier goes; None keeps it whatever its age.
        max_bytes: the oldest go until the rest takes no more; None for any size.
        pending_seconds: what somebody may still want to use, such as a result that is not applied, stays so long.
    """

    max_age_seconds: int | None = 30 * 86_400
    max_bytes: int | None = 4 << 30
    pending_seconds: int = 90 * 86_400
