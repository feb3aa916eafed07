"""The composition root: plain imports, areas in the order in which they are made, nothing bound before it is there."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import sublet.app
from sublet.app import agents, areas, governance, lending, peering, rooms, upkeep, working
from sublet.app.areas import Areas, make_areas
from sublet.app.ground import Ground

ROOT = Path(sublet.app.__file__).parent
SOURCE = ROOT.parent
MODULES = sorted(ROOT.glob("*.py"))
MAKERS = (
    governance.make_governance,
    peering.make_peering,
    rooms.rooms_of,
    lending.make_lending,
    agents.make_agents,
    working.make_working,
    upkeep.make_upkeep,
)


def test_each_area_is_one_function_of_areas_before_it() -> None:
    """What an area needs is in its arguments, by their types; what it makes is one frozen bundle."""
    made: list[object] = [Ground]
    for maker in MAKERS:
        hints = get_type_hints(maker)
        bundle = hints.pop("return")
        assert set(hints.values()) <= set(made), f"{maker.__name__} takes what is not made before it"
        assert bundle.__dataclass_params__.frozen
        made.append(bundle)
    assert list(get_type_hints(Areas).values()) == made
    body = inspect.getsource(make_areas).partition('"""')[2]
    assert re.findall(r"(make_\w+|rooms_of)\(ground[,)]", body) == [maker.__name__ for maker in MAKERS]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_function_uses_what_is_made_after_it(path: Path) -> None:
    """A lambda that names what comes later hides a circle, and fails where it is called too early."""
    for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
        assert late(function) == [], f"{path.name}: {function.name} binds late"


def test_a_late_binding_is_found() -> None:
    text = "def make():\n    a = A(lambda: b.now)\n    b = B(a)\n    c = C(lambda: a)\n    return c\n"
    assert [late(function) for function in functions(ast.parse(text))] == [["b"]]


def test_no_module_of_ours_is_named_in_a_string_to_be_loaded() -> None:
    """Loaded by a name are extensions of others alone."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "import_module" in text or "__import__(" in text:
            assert not re.search(r"[\"']sublet\.\w+(\.\w+)*(:\w+)?[\"']", text), path


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def late(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names that something in a function uses inside itself before they are first assigned there."""
    first: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            first[node.id] = min(node.lineno, first.get(node.id, node.lineno))
    inner = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) and node is not function
    ]
    own = {one.arg for node in inner for one in ast.walk(node) if isinstance(one, ast.arg)}
    return sorted(
        {
            used.id
            for node in inner
            for used in ast.walk(node)
            if isinstance(used, ast.Name) and used.id not in own
            if used.id in first and node.lineno < first[used.id] and not _assigned_in(node, used.id)
        }
    )


def _assigned_in(node: ast.AST, name: str) -> bool:
    names = (one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
    return any(one.id == name for one in names)


def test_the_areas_are_those_of_the_package() -> None:
    assert {maker.__module__.rpartition(".")[2] for maker in MAKERS} | {"ground"} == set(get_type_hints(areas.Areas))
