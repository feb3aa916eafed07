"""The patterns of a lease's rules, compiled once for all leases that have the same."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.view.patterns import AnyOf, PathPattern, PatternSet

KEPT_COMPILED: Final = 16
"""Sets of patterns that are kept compiled; they are the delegator's own, at most ``rules.MAX_PATTERNS`` each."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The patterns of some rules, which nobody changes: leases with the same patterns share them."""

    hidden: PatternSet
    excepted: PatternSet
    excluded: PatternSet
    kept: PatternSet
    revealed: PatternSet
    locked: PatternSet
    carried: PatternSet
    unlocked: PatternSet
    included: PatternSet | None
    writable: PatternSet | None
    guards: tuple[PathPattern, ...]
    notable: AnyOf


@functools.lru_cache(maxsize=KEPT_COMPILED)
def compiled(
    hidden: tuple[str, ...],
    locked: tuple[str, ...],
    carried: tuple[str, ...],
    revealed: tuple[str, ...],
    unlocked: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    writable: tuple[str, ...],
    folds: bool,
) -> Compiled:
    """Return the patterns of rules, in the order of the arguments of ``Rules``."""
    names, excepted = _with_exceptions(hidden)
    excluded, kept = _with_exceptions(exclude)
    shown = PatternSet(revealed, fold=False)
    shut = PatternSet(locked, fold=True, smart_case=not folds)
    brought = PatternSet(carried, fold=True, smart_case=not folds)
    opened = PatternSet(unlocked, fold=False)
    included = PatternSet(include, fold=False) if include else None
    sets = [names, excepted, shown, shut, brought, opened, excluded, kept, *([included] if included is not None else [])]
    # What is writable guards nothing: all below such a name is, and what lies above is locked unless it is one itself.
    guards = tuple(path for patterns in sets for path in patterns.paths)
    changed = PatternSet(writable, fold=False) if writable else None
    sets += [changed] if changed is not None else []
    notable = AnyOf(
        (last for patterns in sets for last in patterns.last_folded),
        (last for patterns in sets for last in patterns.last_written),
    )
    return Compiled(names, excepted, excluded, kept, shown, shut, brought, opened, included, changed, guards, notable)


def from_the_root(pattern: str) -> str:
    """Return a writable pattern as a path from the root of the directory.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for an exception, which there is none of, and for a path elsewhere.
    """
    if pattern.startswith("**/"):
        return pattern
    path = pattern.removeprefix("./")
    if path.startswith(("!", "/", "~")) or not path.strip("/"):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"{pattern[:80]!r} is no path in the directory that is lent, such as src or docs/*.md",
            "Write the path from that directory on; **/ before a name means at any depth, and there are no exceptions.",
        )
    return f"/{path}"


def _with_exceptions(patterns: Sequence[str]) -> tuple[PatternSet, PatternSet]:
    """Return what the patterns name, and what those with a leading ``!`` take out of it."""
    return (
        PatternSet((p for p in patterns if not p.startswith("!")), fold=True),
        PatternSet((p[1:] for p in patterns if p.startswith("!")), fold=True),
    )
