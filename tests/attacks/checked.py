"""What is asserted of every probe, whatever its kind."""

from __future__ import annotations

from attacks.counting import Counted, not_entered
from attacks.covered import covers_of
from attacks.probe import Probe


def check_covers(probe: Probe, counted: Counted) -> None:
    """Assert that a probe ran through all that it covers, so that no row of a place is a mere text."""
    missing = not_entered(covers_of(probe), counted.entered)
    assert not missing, f"it does not run through what it covers: {missing}"
