"""What is told of a capability, one level at a time, within a budget (SuperAgent 6.3, 13)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sublet.policy.capabilities.module_file import CapabilityModule, Level
from sublet.protocol.text import clean, clean_line

BUDGETS: Final[Mapping[Level, int]] = {1: 200, 2: 1_500, 3: 6_000}
"""Estimated tokens of a level, unless whoever asks names another number."""
MAX_BUDGET: Final = 50_000
_BYTES_PER_TOKEN: Final = 4
_NOTICE: Final = "[… {} lines left out; ask with a larger budget …]"


@dataclass(frozen=True, slots=True)
class Documents:
    """The texts of a capability: its README and its command-line documentation, and what it printed as help."""

    readme: str = ""
    cli: str = ""
    help: str = ""


@dataclass(frozen=True, slots=True)
class Disclosure:
    """One level of one capability: its text, about how many tokens that is, and how many lines were left out."""

    id: str
    level: Level
    text: str
    tokens: int
    left_out: int


def disclose(module: CapabilityModule, documents: Documents, level: Level, budget: int | None = None) -> Disclosure:
    """Return one level, and nothing of the others: 1 is what it is, 2 how it is called, 3 its documents.

    The text is cut after whole lines, always at the same place for the same budget.
    """
    lines = _LEVELS[level](module, documents)
    return _within(module.id, level, lines, BUDGETS[level] if budget is None else min(budget, MAX_BUDGET))


def estimated_tokens(text: str) -> int:
    """Return about how many tokens ``text`` is, without asking any model's tokenizer."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


def _what_it_is(module: CapabilityModule, _documents: Documents) -> list[str]:
    return [
        f"{module.id}: {clean_line(module.name, 200)} {clean_line(module.version, 50)}",
        clean_line(module.description),
        f"command: {clean_line(module.command, 200)}",
    ]


def _how_it_is_called(module: CapabilityModule, documents: Documents) -> list[str]:
    schema = json.dumps(module.schema_of_arguments(), sort_keys=True, separators=(",", ":"))
    lines = [f"tool: {module.tool}", f"help: {_line(module, module.help_args)}"]
    lines += [f"version: {_line(module, module.version_args)}", f"schema of the arguments: {schema}"]
    if documents.help:
        lines += ["", "What it prints as help:", *clean(documents.help).splitlines()]
    return lines


def _its_documents(module: CapabilityModule, documents: Documents) -> list[str]:
    # The commands first: they are what is needed, where there is no room for both.
    lines: list[str] = []
    for name, text in ((module.cli_doc_file, documents.cli), (module.readme_file, documents.readme)):
        if text:
            lines += [f"--- {name}", *clean(text, len(text)).splitlines(), ""]
    return lines or ["It has no documents."]


_LEVELS: Final = {1: _what_it_is, 2: _how_it_is_called, 3: _its_documents}


def _line(module: CapabilityModule, arguments: tuple[str, ...]) -> str:
    return clean_line(" ".join([module.command, *arguments]), 500)


def _within(module_id: str, level: Level, lines: list[str], budget: int) -> Disclosure:
    text = "\n".join(lines)
    if estimated_tokens(text) <= budget:
        return Disclosure(module_id, level, text, estimated_tokens(text), 0)
    room = budget * _BYTES_PER_TOKEN - len(_NOTICE.format(len(lines)).encode())
    kept: list[str] = []
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    cut = "\n".join([*kept, _NOTICE.format(left)])
    return Disclosure(module_id, level, cut, estimated_tokens(cut), left)
