"""The attacks that were tried, as ``tests/attacks/tried/*.toml`` holds them, and the table of them in the docs."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "tried"
BEGIN, END = "<!-- attacks -->", "<!-- /attacks -->"


@dataclass(frozen=True, slots=True)
class Tried:
    """One attack.

    Args:
        who: the attacker, such as ``executor``.
        tries: what it does.
        stopped_by: what stops it.
        test: the test that shows it, as ``tests/attacks/test_x.py::test_y``.
    """

    who: str
    tries: str
    stopped_by: str
    test: str


def load() -> list[Tried]:
    """Return all attacks, in the order of the files' names and of the rows in each."""
    return [
        Tried(**row)
        for file in sorted(FOLDER.glob("*.toml"))
        for row in tomllib.loads(file.read_text(encoding="utf-8"))["attack"]
    ]


def table() -> str:
    """Return the table of ``docs/reliability.md``, with the marks around it."""
    rows = [f"| {one.who} | {one.tries} | {one.stopped_by} | `{one.test}` |" for one in load()]
    return "\n".join([BEGIN, "| who | tries | stopped by | test |", "|---|---|---|---|", *rows, END])
