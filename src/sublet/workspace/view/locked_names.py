"""The names that the delegator's own tools run or obey later, as ``locked_names.toml`` holds them with the reasons."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("locked_names.toml")
BEGIN: Final = "<!-- locked names -->"
END: Final = "<!-- /locked names -->"


@dataclass(frozen=True, slots=True)
class LockedNames:
    """Names that one tool acts on.

    Args:
        group: the part of the table in the docs.
        patterns: what the names are (``patterns``).
        tool: who acts on them.
        does: what that does.
        source: where that is said.
        carried: whether packages carry such names as well, so that they are free below ``packages()``.
    """

    group: str
    patterns: tuple[str, ...]
    tool: str
    does: str
    source: str
    carried: bool = False


@cache
def load() -> tuple[LockedNames, ...]:
    """Return all rows, in the order of the file."""
    rows = _read()["names"]
    return tuple(LockedNames(**{**row, "patterns": tuple(row["patterns"])}) for row in rows)


def patterns() -> tuple[str, ...]:
    """Return the patterns that are locked wherever they are."""
    return tuple(pattern for row in load() if not row.carried for pattern in row.patterns)


def carried() -> tuple[str, ...]:
    """Return the patterns that are locked, but not below a directory that holds packages."""
    return tuple(pattern for row in load() if row.carried for pattern in row.patterns)


def packages() -> frozenset[bytes]:
    """Return the names of directories that hold packages."""
    return frozenset(name.encode() for name in _read()["packages"])


@cache
def _read() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def table() -> str:
    """Return the table of ``docs/what-is-lent.md``, with the marks around it."""
    lines = [BEGIN]
    group = ""
    for row in load():
        if row.group != group:
            group = row.group
            lines += ["", f"**{group}**", "", "| names | who acts on them |", "|---|---|"]
        names = ", ".join(f"`{pattern}`" for pattern in row.patterns) + ("" if not row.carried else " (not in packages)")
        lines.append(f"| {names} | {row.tool}: {row.does} ([source]({row.source})) |")
    return "\n".join([*lines, "", END])
