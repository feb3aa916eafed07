"""The table of ``--json`` in docs/cli.md: which names each command's object has, and what is beneath each.

A name is in backticks. What stands in brackets after it, or after a colon where it is a list, is beneath it: names of
its fields, or the values that it may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from support.pages.fences import ROOT

_ROW = re.compile(r"^\| (?P<commands>`.+?) \| (?P<cell>.+) \|$")
_PART = re.compile(r"`(?P<name>[^`]+)`(?P<colon>:(?= ))?|(?P<mark>[();])|(?P<word>[^`();]+)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\[\])?(\.[a-z_]+(\[\])?)*")
_DELEGATION: Final = "`delegate`, `say`, `extend`, `cancel`"
_NOT_A_NAME: Final = frozenset({"null", "ID"})
_ELSEWHERE = re.compile(r"\b(as|entry of|the) $")
"""Before a name that is told of in another row."""
_COMMAND = re.compile(r" (also|without|a list|shows)|: with")
"""After a command of the row, which is no name."""


@dataclass
class Names:
    """The names of an object, each with those beneath it."""

    beneath: dict[str, Names] = field(default_factory=dict)

    def add(self, path: str) -> Names:
        """Add a name, such as ``error.code`` or ``files[]``, and return what is beneath it."""
        here = self
        for part in path.replace("[]", "").split("."):
            here = here.beneath.setdefault(part, Names())
        return here


def rows() -> Mapping[str, Names]:
    """Return the names of each row, by its first cell."""
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    table = page.partition("| command | object |\n")[2].partition("\n\n")[0]
    found: dict[str, Names] = {}
    for line in table.splitlines()[1:]:
        row = _ROW.match(line)
        assert row is not None, line
        names = names_of(row["cell"])
        if row["cell"].startswith("the same"):
            names.beneath = list(found.values())[-1].beneath | names.beneath
        elif row["cell"].startswith("a delegation, "):
            names.beneath = found[_DELEGATION].beneath | names.beneath
        found[row["commands"]] = names
    return found


def names_of(cell: str) -> Names:
    """Return the names that a cell tells of."""
    top = Names()
    stack, last, before = [top], top, ""
    listed: list[int] = []
    for part in _PART.finditer(cell):
        if (name := part["name"]) is not None:
            told = not _ELSEWHERE.search(before) and not _COMMAND.match(cell, part.end("name") + 1)
            if told and _NAME.fullmatch(name) and name not in _NOT_A_NAME:
                last = stack[-1].add(name)
                if part["colon"] and name.endswith("[]"):
                    listed.append(len(stack))
                    stack.append(last)
            before = ""
        elif part["mark"] == "(":
            stack.append(last)
        elif part["mark"] == ")":
            while listed and listed[-1] >= len(stack) - 1:
                listed.pop()
                stack.pop()
            last = stack.pop()
        elif part["mark"] == ";":
            while listed and listed[-1] == len(stack) - 1:
                listed.pop()
                stack.pop()
        before = part["word"] or ""
    return top


def lacking(names: Names, answers: list[Any], path: str = "") -> Iterator[tuple[str, bool]]:
    """Yield each name that no answer has, or that none has filled, with whether it is there at all."""
    objects = [one for answer in answers for one in (answer if isinstance(answer, list) else [answer])]
    found = [one for one in objects if isinstance(one, dict)]
    if not found:
        return  # values of a name, or nothing to look into, which is told of the name itself
    for name, beneath in names.beneath.items():
        values = [one[name] for one in found if name in one]
        filled = [one for one in values if one not in (None, [], {}, "")]
        if not filled:
            yield f"{path}{name}", bool(values)
            continue
        if all(isinstance(one, dict) and not set(one) & set(beneath.beneath) for one in filled):
            filled = [each for one in filled for each in one.values()]  # by id or by entity
        yield from lacking(beneath, filled, f"{path}{name}.")


def untold(names: Names, answers: list[Any]) -> set[str]:
    """Return the keys of answers that no name tells of."""
    objects = [one for answer in answers for one in (answer if isinstance(answer, list) else [answer])]
    return {key for one in objects for key in one} - set(names.beneath)
