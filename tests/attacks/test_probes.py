"""No place of ``src`` that a peer could reach lacks a probe; the tests beside this one run every probe."""

from __future__ import annotations

from attacks import covered
from attacks.lacking import without_probe
from attacks.probe import Reason
from attacks.probes import ALL
from attacks.sites import places

MOST_REASONS = 0.1


def test_names_are_used_once() -> None:
    names = [probe.name for probe in ALL]
    assert len(set(names)) == len(names)
    # What is fuzzed under no name of its own is covered by what it enters.
    assert all(probe.covers for probe in ALL if not probe.name.startswith("decoder: "))
    assert covered.names() <= set(names), "`python -m attacks.lacking --write` forgets these"


def test_few_places_have_a_reason_only() -> None:
    reasons = {name for probe in ALL if isinstance(probe, Reason) for name in probe.covers}
    assert reasons <= set(places()), "these are no places any more"
    assert len(reasons) <= MOST_REASONS * len(places())


def test_every_place_has_a_probe() -> None:
    assert without_probe() == {}, "let a probe cover it, or see `python -m attacks.lacking`"
