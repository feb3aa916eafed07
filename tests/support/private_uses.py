"""Finds what ``src`` uses of other packages beyond what they promise: names with an underscore, and inner modules.

An underscored name counts as another's where no class or module of ours defines it, where a ``Protocol`` of ours
declares it (which is how we write down what we use of an object that is not ours), and where it is read by its text.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
PUBLIC_ROOTS = frozenset({"asyncssh", "h11", "re2", "uvicorn", "zenoh"})
"""Packages that promise what their top level has, and nothing of their modules."""
DOCUMENTED = frozenset({"os._exit", "sys._current_frames", "*._replace", "*._asdict", "ctypes._NamedFuncPointer"})
"""Names that are public in spite of their underscore; the last is for a type checker alone."""
BY_TEXT = frozenset({"getattr", "setattr", "hasattr", "delattr"})


def private_uses() -> set[tuple[str, str]]:
    """Return pairs of our module and the name that it uses."""
    # To walk through a module takes longer than to parse it, so each is walked through once.
    modules = {
        _module(path): [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))] for path in sorted(SRC.rglob("*.py"))
    }
    own = {name for nodes in modules.values() for name in _defined(nodes)}
    return {(module, name) for module, nodes in modules.items() for name in _used(nodes, own)}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).partition("[")[0] in ("Protocol", "typing.Protocol") for base in node.bases)


def _defined(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "__slots__":
                    yield from ast.literal_eval(line.value)


def _used(nodes: Sequence[ast.AST], own: set[str]) -> Iterator[str]:
    yield from _declared(nodes)
    for node in nodes:
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            if not {ast.unparse(node), f"*.{node.attr}"} & DOCUMENTED:
                yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BY_TEXT:
            yield from (text for text in _texts(node.args[1:2]) if _is_private(text))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            # A constant that lists names, to be read by their text.
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            names = [text for text in _texts(values) if text.isidentifier()]
            if names and len(names) == len(values) and "__slots__" not in ast.unparse(node):
                yield from filter(_is_private, names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from _imported(node.module, [one.name for one in node.names])
        elif isinstance(node, ast.Import):
            for one in node.names:
                yield from _imported(one.name, [])


def _declared(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the private names that a protocol of ours says an object of another's has."""
    for node in nodes:
        if isinstance(node, ast.ClassDef) and _is_protocol(node):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and _is_private(ast.unparse(line.target)):
                    yield ast.unparse(line.target)


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    return (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _imported(module: str, names: list[str]) -> Iterator[str]:
    if module.partition(".")[0] in ("sublet", "__future__"):
        return
    if any(map(_is_private, module.split("."))) or ("." in module and module.partition(".")[0] in PUBLIC_ROOTS):
        yield module
    yield from (f"{module}.{name}" for name in names if _is_private(name))


if __name__ == "__main__":
    for module, name in sorted(private_uses()):
        sys.stdout.write(f"{module} {name}\n")
