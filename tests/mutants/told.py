"""Tells what is kept of mutants: how many of each module were killed, are explained, survived, or were not tried."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Final

from mutants.decides import AREAS
from mutants.kept import Kept

HEADS: Final = ("mutants", "killed", "explained", "survived", "not tried", "killer changed")
"""The last are killed ones as well: the test module that has noticed has changed since."""


@dataclass
class Amounts:
    """Of one module, or of several."""

    mutants: int = 0
    killed: int = 0
    explained: int = 0
    survived: int = 0
    left: int = 0
    changed: int = 0
    names: list[str] = field(default_factory=list)
    """Of who survived without being explained."""

    def add(self, other: Amounts) -> None:
        """Add another's."""
        for name in ("mutants", "killed", "explained", "survived", "left", "changed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def amounts(kept: Kept, file: str, numbers: Sequence[int], explained: Collection[tuple[str, str]]) -> Amounts:
    """Count what is kept of one module.

    Args:
        kept: where.
        file: below the package.
        numbers: of its mutants.
        explained: files and names of mutants that have a reason.
    """
    known = kept.known(file)
    found = Amounts(mutants=len(numbers))
    for number in numbers:
        shown = known.get(number)
        if shown is None:
            found.left += 1
        elif not shown.survived:
            found.killed += 1
            found.changed += kept.changed_since(shown)
        elif (file, shown.name) in explained:
            found.explained += 1
        else:
            found.survived += 1
            found.names.append(shown.name)
    return found


def table(kept: Kept, there: Mapping[str, Amounts]) -> list[str]:
    """Return a line for each module, for each area and for all, below heads."""
    whole, areas = Amounts(), {area: Amounts() for area in AREAS}
    rows = []
    for file, own in there.items():
        rows.append(_row(f"{file}{' (outdated)' if kept.outdated(file) else ''}", own))
        whole.add(own)
        for area, sums in areas.items():
            if file == area or file.startswith(f"{area}/"):
                sums.add(own)
    rows += [_row(area, sums) for area, sums in areas.items() if sums.mutants and len(there) > 1]
    rows.append(_row("all", whole))
    rows.insert(0, ["", *HEADS])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(_aligned(row, widths)).rstrip() for row in rows]


def _row(name: str, own: Amounts) -> list[str]:
    return [name, *(str(number or "-") for number in astuple(own)[: len(HEADS)])]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
