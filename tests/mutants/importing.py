"""Tells which of our modules import another as they are loaded, at once or by way of others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from mutants.decides import PACKAGE


def name_of(file: str) -> str:
    """Return how a module below the package is called."""
    parts = [PACKAGE.name, *Path(file).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def importers(name: str) -> set[str]:
    """Return a module and all of ours that can't be loaded without it."""
    found, left = {name}, [name]
    while left:
        one = left.pop()
        new = {module for module, imports in _graph().items() if one in imports} - found
        found |= new
        left += new
    return found


@cache
def _graph() -> dict[str, set[str]]:
    names = {name_of(path.relative_to(PACKAGE).as_posix()): path for path in PACKAGE.rglob("*.py")}
    return {name: set(_imports(name, path)) & names.keys() for name, path in names.items()}


def _imports(name: str, path: Path) -> Iterator[str]:
    """Return what a module imports, with the packages that this is in, which are loaded before it."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    yield from _with_packages(package)
    for node in _at_load(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_packages(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] + "." if node.level else ""
            module = (base + (node.module or "")).rstrip(".")
            yield from _with_packages(module)
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _with_packages(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[: count + 1]) for count in range(len(parts)))


def _at_load(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk all but the bodies of functions, which run later, and what is for the type checker."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            left += node.orelse
        else:
            left += ast.iter_child_nodes(node)
