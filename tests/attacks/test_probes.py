"""Every probe, counted: cost is linear, bytes stay within their bound, failures end nothing; and no place lacks one."""

from __future__ import annotations

from pathlib import Path

import pytest

from attacks.counting import Counted, count_cost, count_failure, count_kept, not_entered
from attacks.lacking import without_probe
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe, Reason
from attacks.probes import ALL
from attacks.sites import places

LINEAR = 2.5
KNOWN = Path(__file__).with_name("lacking.txt")
"""Places that still lack a probe, one a line as ``attacks.lacking`` prints them; none may be added."""
MOST_REASONS = 0.1
COSTS = [probe for probe in ALL if isinstance(probe, CostProbe)]
KEPT = [probe for probe in ALL if isinstance(probe, KeptProbe)]
FAILURES = [probe for probe in ALL if isinstance(probe, FailureProbe)]
REASONS = [probe for probe in ALL if isinstance(probe, Reason)]


def check_covers(probe: Probe, counted: Counted) -> None:
    assert not not_entered(probe, counted.entered), "it does not run through what it covers"


def test_names_are_used_once() -> None:
    names = [probe.name for probe in ALL]
    assert len(set(names)) == len(names)
    # What is fuzzed under no name of its own is covered by what it enters.
    assert all(probe.covers for probe in ALL if not probe.name.startswith("decoder: "))


@pytest.mark.parametrize("probe", COSTS, ids=lambda probe: probe.name)
def test_the_cost_is_linear(probe: CostProbe) -> None:
    counted = count_cost(probe)
    assert counted.growth <= LINEAR
    check_covers(probe, counted)


@pytest.mark.parametrize("probe", KEPT, ids=lambda probe: probe.name)
def test_what_is_kept_has_a_bound_and_goes_with_the_peer(probe: KeptProbe) -> None:
    counted = count_kept(probe)
    assert counted.there <= probe.bound
    assert counted.left <= probe.left
    check_covers(probe, counted)


@pytest.mark.parametrize("probe", FAILURES, ids=lambda probe: probe.name)
def test_a_failure_ends_nothing_else(probe: FailureProbe) -> None:
    check_covers(probe, count_failure(probe))


@pytest.mark.timeout(600)
def test_every_place_has_a_probe() -> None:
    reasons = {name for probe in REASONS for name in probe.covers}
    assert reasons <= set(places()), "these are no places any more"
    assert len(reasons) <= MOST_REASONS * len(places())
    known = set(KNOWN.read_text(encoding="utf-8").splitlines())
    assert not set(without_probe()) - known, "python -m attacks.lacking lists them"
