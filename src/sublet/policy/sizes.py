"""Sizes as people write them in a policy, its tests and questions: ``10 MiB``."""

from __future__ import annotations

from typing import Final

from sublet.protocol.patterns import Pattern

_UNITS: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = Pattern(r"^([0-9]{1,15}) ?([kmgKMG]?[iI]?[bB])$")


def size_written(text: str) -> int | None:
    """Return the bytes that a size such as ``10 MiB`` means; None where it is none."""
    found = _SIZE.match(text)
    unit = _UNITS.get(found[2].lower()) if found else None
    return None if found is None or unit is None else int(found[1]) * unit
