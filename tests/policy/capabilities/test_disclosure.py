"""Each level of a capability as a whole text, and where a budget cuts it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sublet.policy.capabilities.disclosure import (
    BUDGETS,
    MAX_BUDGET,
    Disclosure,
    Documents,
    disclose,
    estimated_tokens,
)
from sublet.policy.capabilities.module_file import CapabilityModule, parse_module

SCHEMA = '{"items":{"maxLength":8192,"type":"string"},"maxItems":64,"type":"array"}'


def module(**more: Any) -> CapabilityModule:
    given = {"id": "bd", "name": "Beads", "version": "1.2", "description": "Tracks.", "command": "bd", **more}
    return parse_module(json.dumps(given).encode(), "bd")


@pytest.mark.parametrize(
    ("documents", "lines"),
    [
        (Documents(), []),
        (Documents(help="a\x1b[1m\nb", readme="r", cli="c"), ["", "What it prints as help:", "a", "b"]),
    ],
)
def test_how_it_is_called(documents: Documents, lines: list[str]) -> None:
    told = disclose(module(helpArgs=["-h", "x"]), documents, 2)
    head = ["tool: capability.bd", "help: bd -h x", "version: bd --version", f"schema of the arguments: {SCHEMA}"]
    assert told.text.split("\n") == [*head, *lines]
    assert (told.id, told.level, told.left_out, told.tokens) == ("bd", 2, 0, estimated_tokens(told.text))


def test_what_it_is() -> None:
    text = "bd: Beads 1.2\nTracks.\ncommand: bd"
    assert disclose(module(), Documents("r", "c", "h"), 1) == Disclosure("bd", 1, text, 9, 0)
    long = disclose(
        module(name="n" * 201, version="v" * 51, description="d" * 500, command="c" * 100), Documents(), 1, 999
    )
    name, description, command = long.text.split("\n")
    assert name == f"bd: {'n' * 160}… [41 more characters cut] {'v' * 10}… [41 more characters cut]"
    assert (description, command) == ("d" * 500, f"command: {'c' * 100}")


def test_a_line_of_a_command_is_cut() -> None:
    whole, cut = ("x" * (500 - 3), "x" * (501 - 3))
    lines = disclose(module(helpArgs=[whole], versionArgs=[cut]), Documents(), 2).text.split("\n")
    assert lines[1] == f"help: bd {whole}"
    assert lines[2] == f"version: bd {'x' * 457}… [41 more characters cut]"


def test_its_documents() -> None:
    both = Documents(readme="r1\nr2", cli="c1\x07\nc2", help="h")
    assert disclose(module(), both, 3).text == "--- cli.md\nc1\nc2\n\n--- README.md\nr1\nr2\n"
    assert disclose(module(), Documents(readme="r"), 3).text == "--- README.md\nr\n"
    assert disclose(module(), Documents(help="h"), 3).text == "It has no documents."
    long = "l" * 20_000
    assert disclose(module(), Documents(cli=long), 3).text == f"--- cli.md\n{long}\n"


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("abcd", 1), ("abcde", 2), ("\u00e9\u00e9", 1), ("é" * 3, 2)])
def test_tokens_are_quarters_of_bytes(text: str, tokens: int) -> None:
    assert estimated_tokens(text) == tokens


@pytest.mark.parametrize(("more", "kept"), [(0, 7), (1, 6)])
def test_a_text_is_cut_where_the_budget_and_its_notice_say(more: int, kept: int) -> None:
    notice = "[… {} lines left out; ask with a larger budget …]"
    # Of 52 lines the first is "--- cli.md" and the last is empty; five of ten bytes end just where the room does.
    room = 50 * 4 - len(notice.format(52).encode())
    first = "y" * (room - len("--- cli.md\n") - 5 * 10 - 1 + more)
    documents = Documents(cli="\n".join([first, *["x" * 9] * 49]))
    whole, cut = disclose(module(), documents, 3), disclose(module(), documents, 3, 50)
    assert (whole.left_out, whole.text) == (0, f"--- cli.md\n{documents.cli}\n")
    lines = ["--- cli.md", first, *["x" * 9] * (kept - 2), notice.format(52 - kept)]
    text = "\n".join(lines)
    assert cut == Disclosure("bd", 3, text, estimated_tokens(text), 52 - kept)
    assert disclose(module(), documents, 3, whole.tokens) == whole
    assert disclose(module(), documents, 3, whole.tokens - 1).left_out > 0


def test_who_asks_names_a_budget_up_to_the_most() -> None:
    documents = Documents(cli="x\n" * (MAX_BUDGET * 4))
    assert disclose(module(), documents, 3).tokens <= BUDGETS[3]
    most, more = (disclose(module(), documents, 3, budget) for budget in (MAX_BUDGET, MAX_BUDGET + 1))
    assert most == more
    assert MAX_BUDGET - 1 <= most.tokens <= MAX_BUDGET
