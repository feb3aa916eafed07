"""Every failure, thrown: it ends nothing else."""

from __future__ import annotations

import pytest

from attacks.checked import check_covers
from attacks.counting import count_failure
from attacks.covered import covers_of
from attacks.probe import FailureProbe
from attacks.probes import ALL


@pytest.mark.timeout(300)  # a disk fails at each place in turn, which takes long where others are at it too
@pytest.mark.parametrize("probe", [one for one in ALL if isinstance(one, FailureProbe)], ids=lambda probe: probe.name)
def test_a_failure_ends_nothing_else(probe: FailureProbe) -> None:
    check_covers(probe, count_failure(probe, covers_of(probe)))
