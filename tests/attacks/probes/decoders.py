"""Every decoder that is fuzzed, counted as well: its own seeds stretched, and what has made parsers slow before."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import fuzz.feeding  # noqa: F401  (registers the targets)
from attacks.probe import CostProbe
from fuzz.corpus import seeds
from fuzz.targets import TARGETS

SEED: Final = 1729
REPEATED: Final = (
    b"a",
    b"_",
    b" ",
    b"\n",
    b"[",
    b'{"a":',
    b'"',
    b"\\",
    b"0",
    b"\xff",
    b"\x00",
    b"/",
    b"../",
    b"-",
    b"*a",
)
SIZE: Final = 1024
MOST_STRETCHED: Final = 8
"""Seeds of a target that are made longer; all are fuzzed elsewhere."""


def stretched(name: str, size: int) -> Sequence[bytes]:
    """Return inputs of about ``size`` bytes, some of which are seeds of the target that were made longer.

    The seeds as they are come only where little is asked for: their cost is the same at every size.
    """
    known = [seed for seed in seeds(name) if seed]
    if size < SIZE:
        return [*known, b""]
    found = [random.Random(SEED).randbytes(size)]
    found += [(unit * (size // len(unit) + 1))[:size] for unit in REPEATED]
    for seed in known[:: max(1, len(known) // MOST_STRETCHED)]:
        found += [(seed * (size // len(seed) + 1))[:size], _middle_stretched(seed, size)]
    return found


def _middle_stretched(seed: bytes, size: int) -> bytes:
    """Return a seed whose middle byte is repeated, so that what stands around it stays well-formed."""
    middle = len(seed) // 2
    return seed[:middle] + seed[middle : middle + 1] * max(size - len(seed), 1) + seed[middle:]


def feed(name: str, inputs: Sequence[bytes]) -> None:
    """Give all inputs to a target, and swallow the errors that it documents."""
    target = TARGETS[name]
    for data in inputs:
        try:
            target.call(data)
        except target.raises:
            continue


def _probe(name: str, covers: Sequence[str]) -> CostProbe:
    make: Callable[[int], Sequence[bytes]] = partial(stretched, name)
    return CostProbe(name=f"decoder: {name}", covers=covers, make=make, run=partial(feed, name), size=SIZE)


PROBES: Final = tuple(_probe(name, target.covers) for name, target in sorted(TARGETS.items()))
