"""A module with logic is tested from its own directory, or has a row that names who tests it otherwise.

The directories of ``tests`` are those of ``src``: ``daemon/approvals/foresight.py`` is tested from
``tests/daemon/approvals`` or ``tests/daemon``, by a test module that imports it, whatever that is called, or by
``tests/daemon/approvals/test_foresight.py``, however that reaches it. The rows of
``tested_by.txt`` are paths on both sides. One is believed where its test imports the module, or a helper of the test
does, or where a module of the same large package (``sublet.workspace``, …), which they import, does. A command is
believed to be tested where the test types it. Where ``<~`` stands in place of ``<-`` the test runs it in a program of
its own, or as a part of a whole, and nothing shows but that the test is there.

Rows go as tests come. ``ONCE_WITHOUT`` are the modules that had one when this was written: none other may have one.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from sublet.cli.command_table import TABLE
from support.quick import PACKAGES, TESTS, imported

FILE: Final = TESTS / "tested_by.txt"
ONCE_WITHOUT: Final = TESTS / "once_without_a_test.txt"
"""The modules that rows may be about, by name: a module that moves keeps its row."""
ROW: Final = re.compile(r"(?P<module>\S+) (?P<how><-|<~) (?P<test>\S+)\Z")
IN_A_WHOLE: Final = "<~"
LEAST_BRANCHES: Final = 8
"""With how many branches and loops a module has logic."""
BRANCHES: Final = re.compile(r"^ +(?:if|elif|for|while|try|match|async for)\b", re.MULTILINE)


def test_each_module_with_logic_is_tested_from_its_directory_or_has_a_row() -> None:
    without = [module for module in with_logic() if not at_home(module) and module not in rows()]
    assert without == [], f"write a test beside it that imports it; {FILE.name} takes no new names"


def test_rows_are_needed_and_true() -> None:
    assert sorted(rows()) == list(rows()), "in order"
    assert [module for module in rows() if module not in with_logic()] == [], "no module, or one without logic"
    assert [module for module in rows() if at_home(module)] == [], "these have a test of their own now"
    assert [(test, module) for module, (how, test) in rows().items() if not is_true(how, test, module)] == []


def test_rows_are_about_no_other_modules_than_once() -> None:
    once = set(ONCE_WITHOUT.read_text(encoding="utf-8").split())
    assert {name(module) for module in rows()} - once == set(), "a new module has a test beside it"


def test_a_row_is_believed_for_what_the_test_reaches_and_nothing_else() -> None:
    assert reaches("tests/daemon/approvals/test_questions.py", "daemon/approvals/questions.py")
    assert reaches("tests/workspace/changes/test_apply.py", "workspace/changes/transaction.py"), "behind apply.py"
    assert not reaches("tests/daemon/approvals/test_questions.py", "workspace/changes/transaction.py")
    assert not reaches("tests/workspace/changes/test_gone.py", "workspace/changes/transaction.py")


@cache
def rows() -> dict[str, tuple[str, str]]:
    """Return how and by which test, by path, a module is tested that no test of its directory imports."""
    found = [ROW.match(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    assert all(found), "each line is MODULE <- TEST, or MODULE <~ TEST"
    return {row["module"]: (row["how"], row["test"]) for row in found if row is not None}


def is_true(how: str, test: str, module: str) -> bool:
    """Tell whether a row is believed; one that says the weaker word where the stronger would do is not."""
    reached = reaches(test, module)
    return (not reached and (TESTS.parent / test).is_file()) if how == IN_A_WHOLE else reached


@cache
def with_logic() -> frozenset[str]:
    """Return the modules that decide something, by their paths."""
    return frozenset(
        path.relative_to(PACKAGES).as_posix()
        for path in PACKAGES.rglob("*.py")
        if len(BRANCHES.findall(_text(path))) >= LEAST_BRANCHES
    )


def name(module: str) -> str:
    """Return the name of a module, with that of its package."""
    parts = module.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts[-2:])


def dotted(module: str) -> str:
    """Return the name under which a module is imported."""
    return ".".join(["sublet", *module.removesuffix(".py").removesuffix("/__init__").split("/")])


def at_home(module: str) -> bool:
    """Tell whether a test in the directory of a module's package has its name, or one there or around it imports it."""
    package, plain = (TESTS / module).parent, (TESTS / module).stem.lstrip("_")
    named = (package / f"test_{plain}.py", package / f"test_{package.name}_{plain}.py")
    return module in _at_home() or any(path.is_file() for path in named)


@cache
def _at_home() -> frozenset[str]:
    by_name = {dotted(module): module for module in with_logic()}
    return frozenset(
        module
        for path in TESTS.rglob("test_*.py")
        for module in map(by_name.get, _imports(path))
        if module is not None and path.parent != TESTS and f"{module}/".startswith(f"{_below(path.parent, TESTS)}/")
    )


def reaches(test: str, module: str) -> bool:
    """Tell whether a row is believed."""
    path = TESTS.parent / test
    if not path.is_file():
        return False
    wanted, package = dotted(module), ".".join(dotted(module).split(".")[:2])
    used = {one for helper in _with_helpers(path) for one in _imports(helper)}
    if wanted in used:
        return True
    if module.startswith("cli/commands/"):
        return any(word in _text(path) for word in _commands(module))
    beside = [one for one in used if f"{one}.".startswith(f"{package}.")]
    return any(wanted in _imports(file) for one in beside for file in _files(one))


@cache
def _commands(module: str) -> frozenset[str]:
    """Return how a test types the commands of a module, which may be those of its area's group."""
    area, name = module.removesuffix(".py").split("/")[2:4]
    own = [one for one, entry in TABLE.items() if entry.where.partition(":")[0] == f"{area}.{name}"]
    group = [one for one, entry in TABLE.items() if entry.where.startswith(f"{area}.")]
    return frozenset(f'"{one}"' for one in own or group)


def _with_helpers(path: Path) -> frozenset[Path]:
    """Return a test with all modules below ``tests`` that it imports."""
    found, left = set[Path](), [path]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += [file for name in _imports(one) if not name.startswith("sublet") for file in _files(name)]
    return frozenset(found)


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _imports(path: Path) -> frozenset[str]:
    return frozenset(imported(_text(path)))


@cache
def _files(name: str) -> tuple[Path, ...]:
    """Return the file of a module of ours by the name under which it is imported."""
    root = PACKAGES.parent if name.partition(".")[0] == "sublet" else TESTS
    place = root.joinpath(*name.split("."))
    return tuple(file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file())


def _below(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()
