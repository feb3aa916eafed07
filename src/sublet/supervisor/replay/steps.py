"""What a replay says of each decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sublet.protocol.canonical import JsonValue

Result = Literal["equal", "different", "not_replayable", "unknown"]
"""``unknown``: an event of a kind that this version does not know, which is left out."""
Facts = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded decision, and what came of making it again.

    ``recorded`` and ``replayed`` hold what is compared, of a failure its class ``code``; ``replayed`` is None where
    nothing was decided. ``out_of_order`` tells that the event stood before one that came earlier, or names a cause that
    came later; ``copies`` how often it stood there besides; ``missing`` which event it follows from that is not there.
    """

    seq: int
    kind: str
    result: Result
    note: str = ""
    recorded: Facts | None = None
    replayed: Facts | None = None
    out_of_order: bool = False
    copies: int = 0
    missing: int | None = None
