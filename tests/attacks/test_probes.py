"""No place of ``src`` that a peer could reach lacks a probe; the tests beside this one run every probe."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from attacks import covered
from attacks.checked import check_covers
from attacks.counting import count_failure
from attacks.lacking import without_probe
from attacks.probe import FailureProbe, Reason
from attacks.probes import ALL
from attacks.sites import places
from sublet.protocol.names import parse_name

MOST_REASONS = 0.1


@pytest.fixture(scope="module")
def there() -> Collection[str]:
    """All places, which take seconds to find."""
    return places().keys()


def test_names_are_used_once() -> None:
    names = [probe.name for probe in ALL]
    assert len(set(names)) == len(names)
    # What is fuzzed under no name of its own is covered by what it enters.
    assert all(probe.covers for probe in ALL if not probe.name.startswith("decoder: "))
    assert covered.names() <= set(names), "`python -m attacks.lacking --write` forgets these"


def test_few_places_have_a_reason_only(there: Collection[str]) -> None:
    reasons = {name for probe in ALL if isinstance(probe, Reason) for name in probe.covers}
    assert reasons <= set(there), "these are no places any more"
    assert len(reasons) <= MOST_REASONS * len(there)


@pytest.mark.usefixtures("there")
def test_every_place_has_a_probe() -> None:
    assert without_probe() == {}, "let a probe cover it, or see `python -m attacks.lacking`"


@pytest.mark.parametrize("times", [1, 100])
def test_what_a_probe_covers_is_looked_for_until_all_of_it_has_run(times: int) -> None:
    async def throw() -> None:
        for _ in range(times):
            parse_name("bob")

    names, elsewhere = "protocol.names:parse_name", "protocol.lines:LineCutter.feed"
    true = FailureProbe(name="a name", covers=(names,), throw=throw)
    check_covers(true, count_failure(true, true.covers))
    boasting = FailureProbe(name="a name and more", covers=(names, elsewhere), throw=throw)
    with pytest.raises(AssertionError, match="LineCutter"):
        check_covers(boasting, count_failure(boasting, boasting.covers))
