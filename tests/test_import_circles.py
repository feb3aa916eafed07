"""No module needs itself: no circle of imports, those for types alone included.

Layers and contracts are in ``pyproject.toml``. They say nothing of modules within one package, and a circle there
is what makes a package one lump: nobody can read, test or move a part of it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import grimp
import pytest


@cache
def graph() -> grimp.ImportGraph:
    """Return who imports whom in ``src``, imports inside functions and under ``TYPE_CHECKING`` included."""
    return grimp.build_graph("sublet", exclude_type_checking_imports=False, cache_dir=None)


def circles(nodes: Iterable[str], after: Callable[[str], Iterable[str]]) -> list[list[str]]:
    """Return the strongly connected parts of a graph that have more than one node, by Tarjan's algorithm.

    Args:
        nodes: all of them.
        after: the nodes to which an edge leads from one.
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []
    for root in nodes:
        if root in number:
            continue
        number[root] = lowest[root] = len(number)
        path.append(root)
        # An own stack, as Python's would not hold a chain of a thousand modules.
        work = [(root, iter(sorted(after(root))))]
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    path.append(other)
                    work.append((other, iter(sorted(after(other)))))
                    break
                if other in path:
                    lowest[node] = min(lowest[node], number[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    part = path[path.index(node) :]
                    del path[path.index(node) :]
                    if len(part) > 1:
                        found.append(sorted(part))
    return found


def test_no_module_is_in_a_circle() -> None:
    found = circles(sorted(graph().modules), graph().find_modules_directly_imported_by)
    assert found == [], "take out what both sides need, see CONTRIBUTING"


@pytest.mark.parametrize("package", ["sublet.daemon", "sublet.app", "sublet"])
def test_no_package_is_in_a_circle_with_another(package: str) -> None:
    """The packages of the daemon, of the composition root, and of all."""
    depth = package.count(".") + 2

    def part(module: str) -> str:
        return ".".join(module.split(".")[:depth])

    edges: dict[str, set[str]] = {}
    for module in graph().modules:
        if module.startswith(f"{package}."):
            for other in graph().find_modules_directly_imported_by(module):
                if other.startswith(f"{package}.") and part(other) != part(module):
                    edges.setdefault(part(module), set()).add(part(other))
    assert len(edges) > 8
    assert circles(sorted(edges), lambda node: edges.get(node, ())) == []


def test_imports_for_types_are_seen() -> None:
    """A graph without them would find no circle that they close."""
    assert "sublet.protocol.prompt_state" in graph().find_modules_directly_imported_by("sublet.protocol.errors")


@pytest.mark.parametrize(
    ("edges", "found"),
    [
        ({"a": "b", "b": "c", "c": ""}, []),
        ({"a": "b", "b": "a"}, [["a", "b"]]),
        ({"a": "b", "b": "c", "c": "bd", "d": "e", "e": "d"}, [["d", "e"], ["b", "c"]]),
    ],
)
def test_circles_are_found(edges: dict[str, str], found: list[list[str]]) -> None:
    assert circles(edges, lambda node: edges[node]) == found
