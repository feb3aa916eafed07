"""Finds the places of ``src`` where a peer could bring something about: each needs a probe that runs through it.

A place is a function, named as ``package.module:qualified.name`` without the leading ``sublet.``, and what it does:

- ``pattern``: matches by a regular expression;
- ``loop``: goes on ``while`` something holds, so that input may decide for how long;
- ``cache``: keeps what was computed or met (``lru_cache``, ``OrderedDict``, ``deque``, names with cache, memo or seen;
  but for a cached function that takes nothing, which keeps one answer);
- ``open``: opens a file by its name (``os.fdopen``, and ``open`` of what is called ``fd`` or ``descriptor``, open none:
  the descriptor was opened elsewhere);
- ``removal``: removes a file or directory by its name;
- ``change``: gives a file another name, or another length, by its name or descriptor;
- ``service``: starts something that goes on beside its caller.

What is done in a thread is a place by what it does, as everything else. Calls of our own mechanisms (the confined
opener, the linear patterns, the service keeper) are no places: those are probed once, inside. What a command line does
is not looked at: it runs for its user, and ends.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent.parent / "src" / "sublet"
NOT_LOOKED_AT = ("cli",)
CALLS: Mapping[str, str] = {
    "re.compile": "pattern",
    "re.match": "pattern",
    "re.search": "pattern",
    "re.fullmatch": "pattern",
    "re.sub": "pattern",
    "re.split": "pattern",
    "re.findall": "pattern",
    "re.finditer": "pattern",
    "patterns.compile": "pattern",
    "fnmatch.translate": "pattern",
    "fnmatch.fnmatch": "pattern",
    "fnmatch.fnmatchcase": "pattern",
    "OrderedDict": "cache",
    "collections.OrderedDict": "cache",
    "deque": "cache",
    "WeakValueDictionary": "cache",
    "open": "open",
    "os.open": "open",
    "os.rename": "change",
    "os.replace": "change",
    "os.renames": "change",
    "os.truncate": "change",
    "os.ftruncate": "change",
    "os.link": "change",
    "os.symlink": "change",
    "os.unlink": "removal",
    "os.remove": "removal",
    "os.rmdir": "removal",
    "shutil.rmtree": "removal",
    "asyncio.create_task": "service",
    "asyncio.ensure_future": "service",
    "threading.Thread": "service",
    "Thread": "service",
}
METHODS: Mapping[str, str] = {
    "symlink_to": "change",
    "hardlink_to": "change",
    "read_text": "open",
    "read_bytes": "open",
    "write_text": "open",
    "write_bytes": "open",
    "unlink": "removal",
    "rmdir": "removal",
    "rmtree": "removal",
    "start_soon": "service",
    "create_task": "service",
}
DESCRIPTORS = ("fd", "descriptor")
"""Ends of the names that descriptors have here."""
CACHES = ("lru_cache", "cache", "functools.lru_cache", "functools.cache")
KEEPING = ("cache", "memo", "_seen")


@cache
def places() -> Mapping[str, Set[str]]:
    """Return all places with the kinds of what each does."""
    found: dict[str, Set[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        if parts[0] not in NOT_LOOKED_AT:
            found |= _in_file(file, ".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def kinds_of(place: str) -> Set[str]:
    """Return what one place does; nothing where it is none."""
    module = place.partition(":")[0]
    file = SOURCE.joinpath(*module.split("."))
    return _in_file(file / "__init__.py" if file.is_dir() else file.with_suffix(".py"), module).get(place, frozenset())


@cache
def _in_file(file: Path, module: str) -> Mapping[str, Set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, kind in _in_body(ast.parse(file.read_text(encoding="utf-8")), ""):
        found[f"{module}:{name}"].add(kind)
    return dict(found)


def _in_body(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}" if name else child.name
            if any(_named(one) in CACHES for one in child.decorator_list) and _takes_something(child):
                yield inner, "cache"
        elif (kind := _kind(child)) is not None:
            yield name or "module", kind
        yield from _in_body(child, inner)


def _takes_something(node: ast.AST) -> bool:
    return not isinstance(node, ast.FunctionDef) or ast.unparse(node.args) != ""


def _kind(node: ast.AST) -> str | None:
    if isinstance(node, ast.While):
        return "loop"
    if isinstance(node, ast.Call):
        name = _named(node)
        if name == "open" and node.args and _named(node.args[0]).endswith(DESCRIPTORS):
            return None
        if name.endswith(".open") and name != "os.open" and _mode(node):
            return "open"  # ``Path.open``, by what it is given
        return CALLS.get(name) or METHODS.get(name.rpartition(".")[2] if "." in name else "")
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        kept = isinstance(node.value, ast.Dict | ast.Call | ast.List | ast.Set)
        if kept and any(_named(one).endswith(KEEPING) for one in targets):
            return "cache"
    return None


def _mode(node: ast.Call) -> bool:
    """Tell whether a call is given a mode as ``Path.open`` takes it."""
    given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "mode")]
    return any(
        isinstance(one, ast.Constant) and isinstance(one.value, str) and set(one.value) <= set("rwaxbt+") and one.value
        for one in given
    )


def _named(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _named(node.func)
    if isinstance(node, ast.Attribute):
        return f"{_named(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
