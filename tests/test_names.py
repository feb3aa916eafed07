"""A module with logic has a test module of its own name, or a row in ``tested_by.txt`` that names who tests it.

The name is ``test_`` with that of the module, or with those of its package and the module; directories do not count, so
that a module can move. A row is believed where the test's imports lead to the module in a few steps. Rows go as tests
of their own come: ``MOST_ROWS`` is only ever lowered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from support.quick import PACKAGES, TESTS, imported

FILE: Final = TESTS / "tested_by.txt"
APART: Final = " <- "
MOST_ROWS: Final = 232
LEAST_BRANCHES: Final = 8
"""With how many branches and loops a module has logic."""
STEPS: Final = 3
"""How many imports lie between what a test imports and what it tests, at most."""
BRANCHES: Final = re.compile(r"^ +(?:if|elif|for|while|try|match|async for)\b", re.MULTILINE)
COMMANDS: Final = re.compile(r'"([\w.]+):\w+"')
"""How the table of commands names modules."""


def test_each_module_with_logic_has_a_test_of_its_name() -> None:
    own = {path.stem.removeprefix("test_") for path in TESTS.rglob("test_*.py")}
    without = {min(names(path), key=len) for path in with_logic() if not names(path) & (own | set(rows()))}
    assert not without, f"write tests/…/test_NAME.py, or a row of {FILE.name} where another test truly covers it"


def test_rows_are_needed_and_true() -> None:
    own = {path.stem.removeprefix("test_") for path in TESTS.rglob("test_*.py")}
    needed = {name for path in with_logic() if not names(path) & own for name in names(path)}
    assert not set(rows()) - needed, "these have a test of their own, or are no modules with logic"
    assert len(rows()) <= MOST_ROWS
    assert [f"{name}{APART}{test}" for name, test in rows().items() if not leads(test, name)] == []


def rows() -> dict[str, str]:
    """Return who tests what has no test of its own name."""
    found = (line.partition(APART) for line in FILE.read_text(encoding="utf-8").splitlines())
    return {name: test for name, _, test in found}


@cache
def with_logic() -> tuple[Path, ...]:
    """Return the modules of ``src`` that decide something."""
    return tuple(
        path for path in sorted(PACKAGES.rglob("*.py")) if len(BRANCHES.findall(_text(path))) >= LEAST_BRANCHES
    )


def names(path: Path) -> set[str]:
    """Return what the test of a module may be called, without its beginning."""
    if path.stem == "__init__":
        return {path.parent.name}
    plain = path.stem.lstrip("_")
    return {plain, f"{path.parent.name}_{plain}"}


def leads(test: str, name: str) -> bool:
    """Tell whether the imports of a test of this name lead to a module of that name."""
    reached = _helped(path for path in TESTS.rglob("test_*.py") if path.stem == test)
    for _ in range(STEPS + 1):
        if any(name in names(path) for path in reached if PACKAGES in path.parents):
            return True
        reached = reached | {other for path in reached for other in _imports(path)}
    return False


def _helped(paths: Iterable[Path]) -> frozenset[Path]:
    """Return modules below ``tests`` with all those there that they import, and what these import of ``src``."""
    found, left = set[Path](), list(paths)
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += [] if PACKAGES in one.parents else _imports(one)
    return frozenset(found)


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    """Return the modules of ours that a module imports, or names in the table of commands."""
    names = imported(_text(path))
    names += [f"sublet.cli.commands.{name}" for name in COMMANDS.findall(_text(path))]
    return tuple({file for name in names for file in _files(name)})


@cache
def _files(name: str) -> Sequence[Path]:
    root = PACKAGES.parent if name.partition(".")[0] == "sublet" else TESTS
    place = root.joinpath(*name.split("."))
    return [file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()]
