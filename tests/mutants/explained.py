"""Mutants that no test can tell from the original, each with the reason (``explained.toml``)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).parent / "explained.toml"


@dataclass(frozen=True)
class Explained:
    """One row."""

    file: str
    """Below ``src/sublet``."""
    mutation: str
    """As ``Mutant.name``."""
    reason: str

    @property
    def function(self) -> str:
        """The function that has the change, or an empty text."""
        return self.mutation.partition(": ")[0].removeprefix("module")


def load() -> list[Explained]:
    """Return all rows."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["mutant"]
    return [Explained(**row) for row in rows]
