"""The places of ``src`` that no probe claims to run through, for the kinds of what they do.

``python -m attacks.lacking``, with ``tests`` on the path, lists them. With ``--write`` it runs all probes, which takes
minutes, and has ``covered.txt`` say which of them runs through a place that none names.

A pattern needs a probe of cost that runs through it; a loop any probe; a cache a probe of what is
kept; what opens, changes, removes or goes on by itself a failure that is thrown at it. A reason stands for any.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import takewhile

from attacks import covered
from attacks.counting import count
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe, Reason
from attacks.probes import ALL
from attacks.sites import places

ENOUGH: Mapping[str, tuple[type[Probe], ...]] = {
    "pattern": (CostProbe,),
    "loop": (CostProbe, KeptProbe, FailureProbe),
    "cache": (KeptProbe,),
    "open": (FailureProbe,),
    "removal": (FailureProbe,),
    "change": (FailureProbe,),
    "service": (FailureProbe,),
}


def without_probe(rows: bool = True) -> dict[str, set[str]]:
    """Return each place that lacks a probe, with the kinds of what it does for which it does.

    Args:
        rows: whether what ``covered.txt`` adds counts.
    """
    claimed: dict[type[Probe], set[str]] = {kind: set() for kind in (CostProbe, KeptProbe, FailureProbe, Reason)}
    for probe in ALL:
        claimed[type(probe)].update(covered.covers_of(probe) if rows else probe.covers)
    for names in claimed.values():
        # The body of a module runs when it is imported: its patterns and caches are those of the functions beside it.
        names.update({f"{name.partition(':')[0]}:module" for name in names})
    lacking = {
        name: {kind for kind in kinds if not any(name in claimed[one] for one in ENOUGH[kind])}
        for name, kinds in places().items()
        if name not in claimed[Reason]
    }
    return {name: kinds for name, kinds in lacking.items() if kinds}


def find() -> None:
    """Run all probes, and write down which of them runs through a place that none names."""
    wanted = without_probe(rows=False)
    kinds = (CostProbe, KeptProbe, FailureProbe)
    with ProcessPoolExecutor(len(kinds), multiprocessing.get_context("spawn")) as pool:
        entered = dict(zip(kinds, pool.map(_entered, kinds), strict=True))
    about = {probe.name: probe.covers for probe in ALL}
    rows: set[tuple[str, str]] = set()
    for place, lacks in wanted.items():
        for kind in lacks:
            by = [name for one in ENOUGH[kind] for name, through in entered[one].items() if _is_in(place, through)]
            if by:
                rows.add((place, max(by, key=lambda name: _near(place, about[name]))))
    covered.write(rows)


def _entered(kind: type[Probe]) -> dict[str, Collection[str]]:
    return {probe.name: count(probe).entered for probe in ALL if isinstance(probe, kind)}


def _near(place: str, covers: Iterable[str]) -> int:
    """Return how many packages a place has in common with what a probe is about."""

    def common(other: str) -> int:
        pairs = zip(_packages(place), _packages(other), strict=False)
        return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))

    return max(map(common, covers), default=0)


def _packages(place: str) -> list[str]:
    return place.partition(":")[0].split(".")


def _is_in(place: str, through: Collection[str]) -> bool:
    module, _, what = place.partition(":")
    return place in through or (what == "module" and any(name.startswith(f"{module}:") for name in through))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        find()
    for name, kinds in sorted(without_probe().items()):
        print(f"{name} ({', '.join(sorted(kinds))})")
