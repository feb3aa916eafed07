"""How much all open documents hold together, counted as it comes and goes, so that asking costs nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class InMemory:
    """What is in memory: elements, the bytes of updates that wait for others, and writers, once for each document."""

    elements: int = 0
    held_bytes: int = 0
    clients: int = 0
