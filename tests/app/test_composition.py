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
from sublet.app import agents, areas, federation, governance, lending, offices, panels, peering, rooms, upkeep, working
from sublet.app.areas import Areas, make_areas
from sublet.app.ground import Ground

ROOT = Path(sublet.app.__file__).parent
SOURCE = ROOT.parent
BOUND_EARLY = ("app", "daemon", "messaging")
"""The packages in which parts are put together of parts."""
MAKERS = (
    governance.make_governance,
    offices.make_offices,
    peering.make_peering,
    rooms.make_rooms,
    lending.make_lending,
    agents.make_agents,
    working.make_working,
    federation.make_federation,
    panels.make_panels,
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
    assert re.findall(r"(make_\w+)\(ground[,)]", body) == [maker.__name__ for maker in MAKERS]


@pytest.mark.parametrize("package", BOUND_EARLY)
def test_no_function_uses_what_is_made_after_it(package: str) -> None:
    """A lambda that names what comes later hides a circle, and fails where it is called too early."""
    found = [
        f"{path.relative_to(SOURCE)}: {function.name} binds {name} late"
        for path in sorted((SOURCE / package).rglob("*.py"))
        for function in functions(ast.parse(path.read_text(encoding="utf-8")))
        for name in late(function)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def make():\n a = A(lambda: b.now)\n b = B(a)\n c = C(lambda: a)\n return c\n", ["b"]),
        ("def make(self):\n self.a = A(lambda: self.b.now())\n self.b = B(self.a)\n", ["self.b"]),
        ("def make(self):\n self.b = B()\n self.a = A(lambda: self.b.now())\n", []),
    ],
)
def test_a_late_binding_is_found(text: str, found: list[str]) -> None:
    assert [late(function) for function in functions(ast.parse(text))] == [found]


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
    """Return the names, ``self.NAME`` as well, that something inside a function uses before they are assigned there."""
    first: dict[str, int] = {}
    for name, node in _named(function, ast.Store):
        first[name] = min(node.lineno, first.get(name, node.lineno))
    inner = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) and node is not function
    ]
    own = {one.arg for node in inner for one in ast.walk(node) if isinstance(one, ast.arg)}
    return sorted(
        {
            name
            for node in inner
            for name, _ in _named(node, ast.Load)
            if name not in own and name in first and node.lineno < first[name]
            if name not in dict(_named(node, ast.Store))
        }
    )


def _named(node: ast.AST, context: type[ast.expr_context]) -> Iterator[tuple[str, ast.Name | ast.Attribute]]:
    """Yield where names, and attributes of names, are used within ``node`` in one context."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, context):
            yield one.id, one
        elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and isinstance(one.ctx, context):
            yield f"{one.value.id}.{one.attr}", one


def test_the_areas_are_those_of_the_package() -> None:
    assert {maker.__module__.rpartition(".")[2] for maker in MAKERS} | {"ground"} == set(get_type_hints(areas.Areas))
