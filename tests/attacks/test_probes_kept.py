"""Every probe of what is kept, counted: within a bound while the peer is there, and gone with it."""

from __future__ import annotations

import pytest

from attacks.checked import check_covers
from attacks.counting import count_kept
from attacks.covered import covers_of
from attacks.probe import KeptProbe
from attacks.probes import ALL


@pytest.mark.parametrize("probe", [one for one in ALL if isinstance(one, KeptProbe)], ids=lambda probe: probe.name)
def test_what_is_kept_has_a_bound_and_goes_with_the_peer(probe: KeptProbe) -> None:
    counted = count_kept(probe, covers_of(probe))
    assert counted.there <= probe.bound
    assert counted.left <= probe.left
    check_covers(probe, counted)
