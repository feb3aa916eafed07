"""Says how much is drawn at random: some of it in each run, all of it at night (``scripts/nightly``)."""

from __future__ import annotations

import os
from typing import Final

NIGHTLY: Final = "SUBLET_TEST_NIGHTLY"
"""The environment variable that ``scripts/nightly`` sets."""
PART: Final = 3
"""One in so many of what is drawn at night is drawn in each run."""
FEWEST: Final = 10
ALL_EXAMPLES: Final = 100
"""What Hypothesis draws where a test does not say how much."""


def examples(number: int = ALL_EXAMPLES) -> int:
    """Return how many examples a property is tried with, of so many at night."""
    return number if NIGHTLY in os.environ else max(number // PART, min(number, FEWEST))
