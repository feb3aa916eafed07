"""Why a reply does not pass."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_ISSUES: Final = 12


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that is wrong with a value: where, as a JSON Pointer, and what; the keyword that says so."""

    path: str
    message: str
    keyword: str = ""

    def line(self) -> str:
        """Return it in one line for people and models."""
        return f"{self.path or '(the whole)'}: {self.message}"


class FailureKind(StrEnum):
    """Why a reply does not pass; the class of the failure, which a replay finds again."""

    EMPTY = "empty"
    TOO_LARGE = "too_large"
    NO_JSON = "no_json"
    INVALID = "invalid"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is none."""

    kind: FailureKind
    issues: tuple[Issue, ...]
    candidates: int = 0
