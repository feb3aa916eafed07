"""Only the confined opener reaches what an agent or a peer could have changed: found in the syntax of the sources.

A call of another kind is free where it goes by the last component below a directory that is held (``dir_fd``) and can't
follow a link there, or by a descriptor. Every other one stands in ``raw_calls.toml``, by its function, with the reason
why nobody but the daemon can have changed what it opens: one more call in the same function is found as well.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import sublet

ROOT: Final = Path(sublet.__file__).parent

CHANGED_BY_OTHERS: Final = (
    "supervisor/", "daemon/working/", "daemon/supervising/", "daemon/modules/", "daemon/results/",
    "daemon/process/leftovers.py", "workspace/staging/", "workspace/sandbox/", "workspace/work_dirs.py",
    "workspace/lease_files.py", "workspace/bundles/", "workspace/archive/", "workspace/git/", "workspace/kept/",
    "workspace/changes/", "daemon/lending/",
)  # fmt: skip
"""Modules that work on private directories of jobs, staged views, results, clones, lent trees and control groups."""

RAW: Final = frozenset(
    {f"os.{name}" for name in (
        "open", "mkdir", "makedirs", "chmod", "chown", "rename", "replace", "renames", "unlink", "remove", "rmdir",
        "removedirs", "link", "symlink", "listdir", "scandir", "utime", "truncate", "mkfifo", "setxattr", "getxattr",
    )}
    | {"open", "io.open"}
)  # fmt: skip
METHODS: Final = frozenset({
    "read_text", "write_text", "read_bytes", "write_bytes", "mkdir", "unlink", "rmdir", "touch", "chmod", "symlink_to",
    "hardlink_to", "iterdir", "glob",
})  # fmt: skip
RECURSIVE: Final = frozenset({"os.walk", "os.fwalk", "shutil.rmtree", "shutil.copytree", "tempfile.TemporaryDirectory"})
"""Nowhere, since what they go down into may be of any depth."""
GOES_DOWN: Final = re.compile(rf"\b(?:{'|'.join(sorted(name.rpartition('.')[2] for name in RECURSIVE))}|rglob)\b")
SHUTIL: Final = frozenset({"shutil.which", "shutil.disk_usage"})

STATE = "a directory of the state that no agent is shown, under a name that a parser made"
DOWN = "the daemon's own walk, whose tree nobody else reaches"
ROWS: Final = Path(__file__).with_name("raw_calls.toml")
FOLLOWS: Final = frozenset({"os.open", "os.chmod", "os.chown", "os.utime"})
"""Calls that follow a link in the last component unless they are told not to."""
ALLOWED_RECURSIVE: Final = {
    "migrations/layout.py": STATE,
    "workspace/changes/apply.py": DOWN,
    "workspace/changes/merge.py": DOWN,
    "workspace/requirements.py": "an empty directory",
}
REASONS: Final = frozenset({"state", "config", "kernel", "held", "descriptor", "own program"})


def dotted(node: ast.expr) -> str:
    """Return ``os.open`` for such a call; of anything else the last name, with a dot before it."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else f".{node.attr}"
    return ""


Found = tuple[str, str, ast.Call | None]
"""The function that calls, what it calls, and the call, None of a function that is handed over."""


def calls(node: ast.AST, name: str = "") -> Iterator[Found]:
    """Yield every call below a node, and every function that is handed over."""
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}" if name else child.name
        elif isinstance(child, ast.Call):
            yield name, dotted(child.func), child
            yield from ((name, dotted(one), None) for one in child.args if isinstance(one, ast.Attribute))
        yield from calls(child, inner)


def confined(name: str, call: ast.Call | None, constants: dict[str, str]) -> bool:
    """Tell whether a call can reach nothing but a name in a directory that is held, or what a descriptor is of."""
    if call is None or not call.args:
        return False
    given = ast.unparse(call.args[0])
    if given.rpartition(".")[2].lstrip("_").endswith(("fd", "descriptor")) or "/proc/self/fd/" in given:
        return True
    words = {one.arg: one.value for one in call.keywords}
    if not words.keys() & {"dir_fd", "src_dir_fd", "dst_dir_fd"}:
        return False
    if name not in FOLLOWS:
        return True
    stays = words.get("follow_symlinks")
    if isinstance(stays, ast.Constant) and stays.value is False:
        return True
    flags = ast.unparse(call.args[1]) if name == "os.open" and len(call.args) > 1 else ""
    for _ in range(3):  # a name for flags may be made of others
        for constant, value in constants.items():
            flags = re.sub(rf"\b{constant}\b", lambda _, value=value: value, flags)  # type: ignore[misc]
    return "O_NOFOLLOW" in flags or "O_EXCL" in flags


def flags_of(tree: ast.AST) -> dict[str, str]:
    """Return what names of one module stand for flags."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and "O_" in (text := ast.unparse(node.value)):
                found[target.id] = f"({text})"
    return found


def is_raw(name: str) -> bool:
    if name.startswith("fs."):  # ``ConfinedFs``
        return False
    return name in RAW or name.rpartition(".")[2] in METHODS or (name.startswith("shutil.") and name not in SHUTIL)


def found() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the raw calls in functions that work on what others change, and the recursive ones anywhere, by module."""
    raw: dict[str, list[str]] = {}
    recursive: dict[str, list[str]] = {}
    trees: dict[str, ast.Module] = {}
    own_flags: dict[str, dict[str, str]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        module, text = file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
        # To parse all of them takes seconds: others have neither flags nor anything that is looked for.
        if module.startswith(CHANGED_BY_OTHERS) or GOES_DOWN.search(text) or "O_" in text:
            trees[module] = ast.parse(text)
            own_flags[module] = flags_of(trees[module]) if "O_" in text else {}
    shared = {
        name: text for flags in own_flags.values() for name, text in flags.items() if name.isupper() and name[0] != "_"
    }
    for module, tree in trees.items():
        flags = {**shared, **own_flags[module]}
        for function, name, call in calls(tree):
            if name in RECURSIVE or name.endswith(".rglob"):
                recursive.setdefault(module, []).append(name)
            elif module.startswith(CHANGED_BY_OTHERS) and is_raw(name) and not confined(name, call, flags):
                raw.setdefault(f"{module}:{function}", []).append(name)
    return {place: sorted(names) for place, names in raw.items()}, recursive


def rows() -> dict[str, dict[str, Any]]:
    """Return what may be, by function: ``calls``, and ``why``."""
    listed: dict[str, dict[str, Any]] = tomllib.loads(ROWS.read_text(encoding="utf-8"))
    return listed


def test_what_others_could_have_changed_is_opened_confined_alone() -> None:
    raw, recursive = found()
    assert raw == {place: row["calls"] for place, row in rows().items()}, "use the confined opener, or give a reason"
    assert {module: names for module, names in recursive.items() if module not in ALLOWED_RECURSIVE} == {}
    assert ALLOWED_RECURSIVE.keys() - recursive.keys() == set()


def test_each_reason_is_one_of_a_few() -> None:
    assert {row["why"] for row in rows().values()} == REASONS


@pytest.mark.parametrize(
    ("text", "free"),
    [
        ("os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd)", True),
        ("os.open(name, os.O_RDONLY, dir_fd=fd)", False),
        ("os.open(path, os.O_RDONLY | os.O_NOFOLLOW)", False),
        ("os.open(name, FLAGS, dir_fd=fd)", True),
        ("os.unlink(name, dir_fd=fd)", True),
        ("os.unlink(path)", False),
        ("os.chmod(name, 0, dir_fd=fd)", False),
        ("os.chmod(name, 0, dir_fd=fd, follow_symlinks=False)", True),
        ("os.listdir(fd)", True),
        ("os.listdir(path)", False),
        ("path.open()", False),
    ],
)
def test_what_is_confined(text: str, free: bool) -> None:
    call = ast.parse(text).body[0]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    constants = {"FLAGS": "(os.O_PATH | os.O_NOFOLLOW)"}
    assert confined(dotted(call.value.func), call.value, constants) is free


GIT_STARTERS: Final = {
    "workspace/bundles/runs.py": "GitRuns, whose program runs in the sandbox with the one repository that it is given",
    "workspace/git/repository_git.py": "RepositoryGit, likewise",
    "workspace/sandbox/git_sandbox.py": "the sandbox itself, which is told where the program is and starts none",
    "workspace/requirements.py": "asks for the version, in no repository",
    "workspace/audit/shadow_git.py": "no work tree and nothing of a peer: objects and trees that our own walk made",
}
"""The modules that may start a ``git``: what reads a peer's bytes goes through one of the first two, both sandboxed."""
STARTING: Final = frozenset({"start_git", "git_program"})
FINDING: Final = frozenset({"shutil.which", "which"})


def test_git_is_started_by_its_runners_alone() -> None:
    """Whoever else asks for git's program, or names it to a function that starts programs, is found."""
    starters: set[str] = set()
    for file in sorted(ROOT.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "git" not in text:  # to parse all of them takes seconds
            continue
        tree = ast.parse(text)
        module = file.relative_to(ROOT).as_posix()
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        for _, name, call in calls(tree):
            last = name.rpartition(".")[2]
            names_git = (
                call is not None
                and name not in FINDING
                and any(
                    isinstance(one, ast.List | ast.Tuple)
                    and one.elts
                    and isinstance(one.elts[0], ast.Constant)
                    and str(one.elts[0].value).rpartition("/")[2] == "git"
                    for one in call.args
                )
            )
            if (last in STARTING and last not in defined) or names_git:
                starters.add(module)
    assert starters == GIT_STARTERS.keys()
