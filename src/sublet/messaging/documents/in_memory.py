"""How much all open documents hold together, counted as it comes and goes, so that asking costs nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class InMemory:
    """What is in memory: elements, and the bytes of updates that wait for others."""

    elements: int = 0
    held_bytes: int = 0
