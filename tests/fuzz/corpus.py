"""The inputs that each target starts from, one file each below ``seeds/``."""

from __future__ import annotations

from pathlib import Path

SEEDS = Path(__file__).parent / "seeds"
FOUND = Path(__file__).parents[2] / ".cache" / "fuzz"
"""Where inputs are kept that break a target."""


def seeds(name: str) -> list[bytes]:
    """Return the seeds of a target, in a stable order."""
    return [path.read_bytes() for path in sorted((SEEDS / name).iterdir())]
