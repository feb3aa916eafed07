"""Who called whom on the way to a call, so that no loop and no endless nesting ever starts work (SuperAgent 5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_MAX_DEPTH: Final = 4
"""How deep calls may be nested where nothing else is configured."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The calls that led here.

    Args:
        execution_chain: addresses ``agent@node`` of those who called, the first caller first; empty for a person.
        lease_id: names the lease of this call; whatever it started ends with it.
        ttl: seconds from now until the lease ends, at the time of sending; never more than the caller's own rest.
    """

    execution_chain: tuple[str, ...] = ()
    lease_id: str = ""
    ttl: float | None = None

    @property
    def nesting_depth(self) -> int:
        """How many calls deep this is."""
        return len(self.execution_chain)
