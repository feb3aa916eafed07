"""Probes of what a peer or a stranger can bring about, one module for each area; ``ALL`` holds every one.

A module here defines ``PROBES``, a sequence of the kinds in ``attacks.probe``, and is found by its being here.
"""

from __future__ import annotations

import importlib
import pkgutil

from attacks.probe import Probe


def load() -> tuple[Probe, ...]:
    """Import every module of this package and return its probes, ordered by name."""
    found: list[Probe] = []
    for module in pkgutil.iter_modules(__path__):
        found.extend(importlib.import_module(f"{__name__}.{module.name}").PROBES)
    return tuple(sorted(found, key=lambda probe: probe.name))


ALL = load()
