"""No test draws what nobody can draw again: what fails once in a hundred runs is never found."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
DRAWS = re.compile(r"urandom|token_bytes|\brandom\b")
UNIQUE = {
    "e2e/test_ezagent_tables.py",
    "e2e/test_plain_a2a_clients.py",
    "messaging/extensions/test_drafts.py",
    "support/members.py",
    "support/room_peer.py",
}
"""Where a number has to be another one than any process has drawn before: identifiers and nonces."""


def unseeded(tree: ast.Module) -> list[str]:
    """Return the calls that draw from the system, or from the generator that all of a process share."""
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return [
        f"{call.func.value.id}.{call.func.attr}"
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and (
            (call.func.value.id, call.func.attr) in {("os", "urandom"), ("secrets", "token_bytes")}
            or (call.func.value.id == "random" and "random" in modules and call.func.attr not in {"Random", "seed"})
        )
    ]


def test_nothing_is_drawn_without_a_seed() -> None:
    found = {
        path.relative_to(TESTS).as_posix(): calls
        for path in sorted(TESTS.rglob("*.py"))
        if DRAWS.search(text := path.read_text(encoding="utf-8"))  # to parse all of them takes seconds
        if (calls := unseeded(ast.parse(text)))
    }
    assert {place: calls for place, calls in found.items() if place not in UNIQUE} == {}, "see support.noise"
    assert set(found) == UNIQUE


def test_what_draws_is_found() -> None:
    source = "import os, random\nos.urandom(4)\nrandom.random()\nrandom.Random(4).random()\n"
    assert unseeded(ast.parse(source)) == ["os.urandom", "random.random"]
