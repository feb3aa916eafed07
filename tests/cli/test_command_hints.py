"""D45: whatever the product tells a person to type is a command of ours, with options that it has.

Every string of ``src`` is looked at, hints of errors and texts of the page alike, so none can be forgotten.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.command_words import typed, wrong

SRC = Path(__file__).parents[2] / "src" / "sublet"
NO_COMMANDS = {
    "sublet daemon": "the common name in a daemon's certificate",
    "sublet bus": "the common name in a certificate of a link",
    "sublet federation": "the common name in a certificate of a node",
    "sublet mcp: X: X": "a line of the relay's log",
    "AWCP v1 messages with the sublet object": "the title of a schema",
}
"""Strings that name the product and no command."""
_END = re.compile(r"[.,:;\]](?=\s|$)")
_SCRIPT_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`')
_FORMATTED = re.compile(r"\$\{[^}]*\}")
LEAST = 200
"""Commands that are found; fewer would mean that the test looks past them."""


def strings(module: ast.Module) -> Iterator[str]:
    """Yield the strings of a module but its docstrings; whatever is formatted into one becomes ``X``."""
    nodes = list(ast.walk(module))
    told = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    left_out = told | parts
    for node in nodes:
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)


@cache
def texts(path: Path) -> list[str]:
    """Return the strings of a module or a script, or a page whole."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return list(strings(ast.parse(text)))
    if path.suffix == ".js":
        return [_FORMATTED.sub("X", one).replace("\\n", "\n").strip('"`') for one in _SCRIPT_STRING.findall(text)]
    return [text]


def commands(text: str) -> list[list[str]]:
    """Return the words of each command in a text; what ends a part of a sentence ends a command."""
    return list(typed(_END.sub("\n", text)))


FILES = sorted(path for kind in ("*.py", "*.js", "*.html") for path in SRC.rglob(kind))


def test_what_one_is_told_to_type_is_there() -> None:
    found = [(path, text) for path in FILES for text in texts(path) if "sublet " in text and text not in NO_COMMANDS]
    told = [(path, words) for path, text in found for words in commands(text)]
    assert len(told) >= LEAST
    lacking = [f"{path.relative_to(SRC)}: {reason}" for path, words in told if (reason := wrong(words))]
    assert lacking == []


def test_what_is_no_command_is_still_there() -> None:
    there = {text for path in FILES for text in texts(path)}
    assert set(NO_COMMANDS) <= there


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ('raise Error("x", hint="See: sublet peer list")', "there is no command 'peer'"),
        (
            'hint = f"sublet room show {room} --everything."',
            "'sublet room show X --everything' has no option --everything",
        ),
        ('hint = "Read it: `sublet text show ROOM REF`."', None),
        ('"""Nobody types sublet nonsense."""', None),
    ],
)
def test_a_wrong_hint_is_found(source: str, reason: str | None) -> None:
    found = [wrong(words) for text in strings(ast.parse(source)) for words in commands(text)]
    assert [one for one in found if one] == ([reason] if reason else [])
