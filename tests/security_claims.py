"""The sentences of ``SECURITY.md`` that claim something, and the tests that ``security_claims.toml`` names for each."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
PAGE: Final = TESTS.parent / "SECURITY.md"
FILE: Final = TESTS / "security_claims.toml"
WITHOUT_CLAIMS: Final = ("Reporting",)
"""Sections that ask something of the reader, and claim nothing about the product."""


@dataclass(frozen=True)
class Claim:
    """One row."""

    says: str
    """How the sentence begins, long enough to be one sentence's alone."""
    tests: tuple[str, ...] = ()
    """Each ``FILE::NAME`` below ``tests``."""
    advice: str = ""
    """Why it is nothing that a test of this product can show, where there are no tests."""


def load() -> list[Claim]:
    """Return all rows."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["claim"]
    return [Claim(row["says"], tuple(row.get("tests", ())), row.get("advice", "")) for row in rows]


def sentences() -> list[str]:
    """Return the sentences of the page, without marks of emphasis and links, in its order."""
    found: list[str] = []
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        if title not in WITHOUT_CLAIMS:
            found += [sentence for part in _parts(body) for sentence in _split(part)]
    return found


def _parts(body: str) -> list[str]:
    """Return paragraphs, list items and cells with a promise, each as one line."""
    parts = []
    for block in re.split(r"\n\s*\n|\n(?=- )|\n(?=\| )", body):
        line = " ".join(block.split())
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            line = "" if cells[0] in ("against", "---") else cells[-1]
        if line:
            parts.append(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line.removeprefix("- ")).replace("**", ""))
    return parts


def _split(part: str) -> list[str]:
    return [one.strip() for one in re.split(r"(?<=[.!?])\s+(?=[A-Z`])", part) if one.strip()]
