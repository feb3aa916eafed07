"""What each probe runs through: what it names itself, and what ``covered.txt`` adds.

A row of the file is a place and the name of the probe that runs through it, in the middle of a scene that names only
what it is about. ``python -m attacks.lacking --write`` finds them; the test of the probe holds that they are true.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path

from attacks.probe import Probe

FILE = Path(__file__).with_name("covered.txt")
APART = " <- "


def covers_of(probe: Probe) -> tuple[str, ...]:
    """Return every place that a probe has to run through."""
    return (*probe.covers, *_added().get(probe.name, ()))


def write(rows: Collection[tuple[str, str]]) -> None:
    """Replace the file by pairs of a place and the name of a probe."""
    FILE.write_text("".join(f"{place}{APART}{name}\n" for place, name in sorted(rows)), encoding="utf-8")
    _added.cache_clear()


def names() -> set[str]:
    """Return the names of the probes that the file knows."""
    return set(_added())


@cache
def _added() -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for row in FILE.read_text(encoding="utf-8").splitlines():
        place, _, name = row.partition(APART)
        found[name].append(place)
    return found
