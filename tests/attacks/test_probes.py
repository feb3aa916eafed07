"""Every probe, counted: cost is linear, bytes stay within their bound, failures end nothing."""

from __future__ import annotations

import pytest

from attacks.counting import Tracing, growth, kept, not_entered
from attacks.probe import CostProbe, FailureProbe, KeptProbe
from attacks.probes import ALL

LINEAR = 2.5
COSTS = [probe for probe in ALL if isinstance(probe, CostProbe)]
KEPT = [probe for probe in ALL if isinstance(probe, KeptProbe)]
FAILURES = [probe for probe in ALL if isinstance(probe, FailureProbe)]


def test_names_are_used_once() -> None:
    names = [probe.name for probe in ALL]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("probe", COSTS, ids=lambda probe: probe.name)
def test_the_cost_is_linear(probe: CostProbe) -> None:
    assert growth(probe) <= LINEAR


@pytest.mark.parametrize("probe", KEPT, ids=lambda probe: probe.name)
def test_what_is_kept_has_a_bound_and_goes_with_the_peer(probe: KeptProbe) -> None:
    there, left = kept(probe)
    assert there <= probe.bound
    assert left <= probe.left


@pytest.mark.anyio
@pytest.mark.parametrize("probe", FAILURES, ids=lambda probe: probe.name)
async def test_a_failure_ends_nothing_else(probe: FailureProbe) -> None:
    with Tracing() as seen:
        await probe.throw()
    assert not not_entered(probe, seen.entered), "it does not run through what it covers"
