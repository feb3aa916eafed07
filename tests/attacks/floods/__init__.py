"""Floods against a running daemon, one module for each area; ``ALL`` holds every one.

A module here defines ``FLOODS``, a sequence of ``Flood``. ``benchmarks/hostile.py`` runs each against a real lender
beside an honest lease: the longest stall, the time from ``cancel`` to refused I/O, memory taken and still held.
"""

from __future__ import annotations

import importlib
import pkgutil

from attacks.flood import Flood


def load() -> tuple[Flood, ...]:
    """Import every module of this package and return its floods, ordered by name."""
    found: list[Flood] = []
    for module in pkgutil.iter_modules(__path__):
        found.extend(importlib.import_module(f"{__name__}.{module.name}").FLOODS)
    return tuple(sorted(found, key=lambda flood: flood.name))


ALL = load()
