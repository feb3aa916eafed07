"""Reads what the modules of a package settle as they are loaded: bounds, names, defaults, shapes of what comes in.

It is kept beside the package's tests (``settled.json``), so that no bound, no name on the wire and no default changes
by the way: whoever changes one changes its line as well. ``python -m support.settled`` (with ``PYTHONPATH=tests``)
draws the lines anew. Words for people are left out.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import inspect
import json
import math
import pkgutil
import re
import struct
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sublet.protocol.patterns import Pattern

TESTS: Final = Path(__file__).parents[1]
PACKAGES: Final = (
    "policy",
    "protocol",
    "supervisor.router",
    "workspace.confined",
    "workspace.sftp",
    "workspace.view",
)
FILE: Final = "settled.json"
WORDS_CHARS: Final = 30
"""A longer text with blanks is words for people."""
MOST_CHARS: Final = 4_000
_GROWING: Final = frozenset({"MADE"})
"""What is added to by whatever is loaded."""
_FOR_PEOPLE: Final = frozenset({"description", "title", "examples"})
_FLAGS: Final = (
    "frozen",
    "extra",
    "strict",
    "populate_by_name",
    "alias_generator",
    "allow_inf_nan",
    "validate_default",
)


def settled(package: str) -> dict[str, dict[str, Any]]:
    """Return by module what it settles."""
    root = importlib.import_module(f"sublet.{package}")
    names = sorted(one.name for one in pkgutil.walk_packages(root.__path__, f"{root.__name__}."))
    found = {name: dict(of_module(importlib.import_module(name))) for name in names}
    return {name.removeprefix("sublet."): lines for name, lines in found.items() if lines}


def kept(package: str) -> dict[str, dict[str, Any]]:
    """Return what was settled when it was last drawn."""
    found: dict[str, dict[str, Any]] = json.loads(_file(package).read_text(encoding="utf-8"))
    return found


def _file(package: str) -> Path:
    return TESTS.joinpath(*package.split("."), FILE)


def written(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return it as a file: a line for each thing."""
    modules = []
    for module, lines in found.items():
        inner = ",\n".join(f"  {json.dumps(name)}: {_short(json.dumps(value))}" for name, value in lines.items())
        modules.append(f" {json.dumps(module)}: {{\n{inner}\n }}")
    return "{\n" + ",\n".join(modules) + "\n}\n"


def _short(text: str) -> str:
    """Return what a line says, or its hash where it is long."""
    return text if len(text) <= MOST_CHARS else f'"sha256 {hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def of_module(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Return what a module settles, line by line."""
    for name in _assigned(ast.parse(inspect.getsource(module)).body):
        if name in vars(module) and not name.startswith("__") and name not in _GROWING:
            yield name, _shown(vars(module)[name])
    for name, one in vars(module).items():
        if isinstance(one, type) and one.__module__ == module.__name__:
            yield from ((f"{name}.{inner}" if inner else name, value) for inner, value in _of_class(one))


def _of_class(one: type) -> Iterator[tuple[str, Any]]:
    if issubclass(one, Enum):
        yield "", {name: _shown(member.value) for name, member in one.__members__.items()}
    elif issubclass(one, BaseModel):
        yield "model_config", {flag: _shown(one.model_config[flag]) for flag in _FLAGS if flag in one.model_config}
        yield "fields", {name: _of_field(field) for name, field in one.model_fields.items()}
    elif dataclasses.is_dataclass(one):
        yield "", {field.name: _default(field) for field in dataclasses.fields(one)}
    else:
        tree = ast.parse(inspect.cleandoc(f"\n{inspect.getsource(one)}")).body[0]
        assert isinstance(tree, ast.ClassDef)
        for name in _assigned(tree.body):
            if name in vars(one) and name != "__slots__":
                yield name, _shown(vars(one)[name])


def _of_field(field: FieldInfo) -> Any:
    default = None if field.default is PydanticUndefined else _shown(field.default)
    made = field.default_factory.__qualname__ if field.default_factory else None
    annotation = re.sub(r" at 0x[0-9a-f]+", "", _plain(repr(field.annotation)))
    return [default, made, field.alias, annotation, *map(_shown, field.metadata)]


def _default(field: Any) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return f"made by {field.default_factory.__qualname__}"
    return "given" if field.default is dataclasses.MISSING else _shown(field.default)


def _assigned(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets = [statement.target]
        for target in targets:
            inner = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (one.id for one in inner if isinstance(one, ast.Name))


def _shown(value: Any) -> Any:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | float):
        return value if value is None or math.isfinite(value) else str(value)
    if isinstance(value, int):
        return value if abs(value) < 1 << 64 else hex(value)
    if isinstance(value, str):
        return "words" if " " in value and len(value) > WORDS_CHARS else value
    if isinstance(value, bytes):
        return f"bytes {value.hex()}" if len(value) < 200 else f"{len(value)} bytes"
    if isinstance(value, Mapping):
        return [[_shown(key), _shown(inner)] for key, inner in value.items()]
    if isinstance(value, frozenset | set):
        return sorted((_shown(one) for one in value), key=str)
    if isinstance(value, tuple | list):
        return [_shown(one) for one in value]
    if isinstance(value, Path):  # which is elsewhere in each checkout
        return f"path of {value.name}"
    if isinstance(value, Pattern):
        return ["pattern", _shown(value.source)]
    if isinstance(value, struct.Struct):
        return ["struct", value.format]
    if isinstance(value, TypeAdapter):
        return _without_words(value.json_schema())
    if isinstance(value, type | FunctionType):
        return value.__qualname__
    if dataclasses.is_dataclass(value):
        return [
            type(value).__name__,
            *([one.name, _shown(getattr(value, one.name))] for one in dataclasses.fields(value)),
        ]
    text = _plain(repr(value))
    return f"some {type(value).__name__}" if " at 0x" in text or "<" in text else text


def _plain(text: str) -> str:
    """Return what a type is called, wherever it is."""
    return re.sub(r"\bsublet(?:\.\w+)*\.(?=\w)", "", text.replace("typing.", ""))


def _without_words(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            name: _without_words(inner)
            for name, inner in schema.items()
            if name not in _FOR_PEOPLE or isinstance(inner, dict)
        }
    return [_without_words(one) for one in schema] if isinstance(schema, list) else schema


if __name__ == "__main__":
    for package in PACKAGES:
        _file(package).write_text(written(settled(package)), encoding="utf-8")
