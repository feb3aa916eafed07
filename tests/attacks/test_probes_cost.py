"""Every probe of cost, counted: twice the input costs at most two and a half times as much."""

from __future__ import annotations

import pytest

from attacks.checked import check_covers
from attacks.counting import count_cost
from attacks.covered import covers_of
from attacks.probe import CostProbe
from attacks.probes import ALL

LINEAR = 2.5


@pytest.mark.parametrize("probe", [one for one in ALL if isinstance(one, CostProbe)], ids=lambda probe: probe.name)
def test_the_cost_is_linear(probe: CostProbe) -> None:
    counted = count_cost(probe, covers_of(probe))
    assert counted.growth <= LINEAR
    check_covers(probe, counted)
