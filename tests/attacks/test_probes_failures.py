"""Every failure, thrown: it ends nothing else."""

from __future__ import annotations

import pytest

from attacks.checked import check_covers
from attacks.counting import count_failure
from attacks.probe import FailureProbe
from attacks.probes import ALL


@pytest.mark.parametrize("probe", [one for one in ALL if isinstance(one, FailureProbe)], ids=lambda probe: probe.name)
def test_a_failure_ends_nothing_else(probe: FailureProbe) -> None:
    check_covers(probe, count_failure(probe))
