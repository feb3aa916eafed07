"""Docstrings say more than the name of what they belong to, and no module is longer than a reader holds in mind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sublet

SOURCE = Path(sublet.__file__).parent
MAX_LINES = 400
_SMALL = """
a an and are as at be been by for from get give given has have if in is it its no not of on one or return returns
set tell that the there this to was what whether which with
"""
SMALL = frozenset(_SMALL.split())
REFERENCE = re.compile(r"``[A-Z]\w*\.\w+``[.:]?")
"""Such as "``Carrier.reserve``": the interface says everything."""


def stem(word: str) -> str:
    """Return the beginning of a word, without its ending."""
    word = word.lower()
    for end in ("ing", "ied", "ies", "es", "ed", "s"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            word = word.removesuffix(end)
            break
    return word.rstrip("e")[:6]


def words_of(name: str) -> set[str]:
    """Return the stems of the words of an identifier."""
    return {stem(word) for word in re.findall(r"[A-Z]+(?![a-z])|[A-Za-z][a-z]*", name)}


def repeats(docstring: str, *names: str) -> bool:
    """Tell whether a docstring has no word but those of the names, and small ones."""
    told = {stem(word) for word in re.findall(r"[A-Za-z]+", docstring) if word.lower() not in SMALL}
    return not REFERENCE.fullmatch(docstring) and told <= {word for name in names for word in words_of(name)}


def documented(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the owner, the name and the docstring of each class and function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if docstring := ast.get_docstring(node):
                yield owner, node.name, docstring
            yield from documented(node, node.name if isinstance(node, ast.ClassDef) else owner)


@pytest.mark.parametrize(
    ("docstring", "names", "empty"),
    [
        ("Return the status.", ("pack_status",), True),
        ("Cancel the task.", ("cancel_task",), True),
        ("Close one handle.", ("close", "Handles"), True),
        ("``Carrier.reserve``.", ("reserve", "Carrier"), False),
        ("Return STATUS, which answers a request.", ("pack_status",), False),
    ],
)
def test_a_docstring_without_a_word_of_its_own_is_seen(docstring: str, names: tuple[str, ...], empty: bool) -> None:
    assert repeats(docstring, *names) is empty


def test_docstrings_say_more_than_their_names() -> None:
    empty = [
        f"{file.relative_to(SOURCE)}: {owner}.{name}: {docstring}"
        for file in sorted(SOURCE.rglob("*.py"))
        for owner, name, docstring in documented(ast.parse(file.read_text(encoding="utf-8")))
        if repeats(docstring, name, owner)
    ]
    assert empty == [], "say something more, or leave the docstring out"


def test_modules_are_short() -> None:
    long = {
        str(file.relative_to(SOURCE)): count
        for file in SOURCE.rglob("*.py")
        if (count := len(file.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert long == {}, "divide it by what it does"
