"""What people are told of a peer whose clock is another than this machine's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_UNITS: Final = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
_REMEDY: Final = "compare the clocks of both machines, and set the one that is wrong"
_OURS: Final = "probably it is this machine's that is wrong: `timedatectl` shows and sets it"


@dataclass(frozen=True, slots=True)
class ClockDiffers:
    """By how much the clock of a peer's daemon differs, and what to do about it."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}"


def clocks_that_differ(names: Mapping[str, str], ahead_ms: Mapping[str, int]) -> dict[str, ClockDiffers]:
    """Return what to say of each peer whose clock differs, by the peer's name.

    Args:
        names: of all peers, by node id.
        ahead_ms: by how much clocks are ahead of ours, by node id; of those alone that differ.
    """
    known = {names[node]: ahead for node, ahead in ahead_ms.items() if node in names}
    ours = len(known) > 1 and (all(ahead > 0 for ahead in known.values()) or all(ahead < 0 for ahead in known.values()))
    remedy = _OURS if ours else _REMEDY
    return {name: ClockDiffers(clock_differs(f"the clock of {name}", ahead), remedy) for name, ahead in known.items()}


def clock_differs(whose: str, ahead_ms: int) -> str:
    """Return by how much a clock differs from ours, in words."""
    seconds = abs(ahead_ms) // 1_000
    unit, size = next((unit, size) for unit, size in _UNITS if seconds >= 2 * size or size == 1)
    way = "ahead of" if ahead_ms > 0 else "behind"
    return f"{whose} is {seconds // size} {unit} {way} this machine's"
