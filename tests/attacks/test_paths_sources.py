"""Only the confined opener reaches what an agent or a peer could have changed: found in the syntax of the sources.

A place that is listed here says in one line why nobody but the daemon can have changed what it opens.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import sublet

ROOT: Final = Path(sublet.__file__).parent

CHANGED_BY_OTHERS: Final = (
    "supervisor/", "daemon/working/", "daemon/supervising/", "daemon/modules/", "daemon/results/",
    "daemon/process/leftovers.py", "workspace/staging/", "workspace/sandbox/", "workspace/work_dirs.py",
    "workspace/lease_files.py",
)  # fmt: skip
"""Modules that work on private directories of jobs, staged views, results and control groups."""

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
SHUTIL: Final = frozenset({"shutil.which", "shutil.disk_usage"})

STATE, CONFIG, KERNEL, DOWN, HELD = (
    "a directory of the state that no agent is shown, under a name that a parser made",
    "a directory of the owner's configuration",
    "files of the kernel's",
    "the daemon's own walk, whose tree nobody else reaches",
    "beneath a descriptor that is held, without following a link",
)
ALLOWED: Final = {
    "supervisor/closed_paths.py": HELD,
    "supervisor/guard.py": KERNEL,
    "supervisor/processes.py": KERNEL,
    "supervisor/sessions/store.py": STATE,
    "supervisor/chat/conversations.py": STATE,
    "supervisor/capabilities/registry.py": CONFIG,
    "supervisor/gateways/module_file.py": CONFIG,
    "supervisor/guarded_process.py": KERNEL,
    "supervisor/well_known/adding.py": CONFIG,
    "supervisor/tool_server/opened.py": "the program of the relay, which is the package's own",
    "daemon/modules/gateway_feed.py": STATE,
    "daemon/modules/gateways.py": STATE,
    "daemon/supervising/older_sessions.py": STATE,
    "daemon/process/leftovers.py": STATE,
    "workspace/sandbox/cgroups.py": KERNEL,
    "workspace/staging/copy.py": HELD,
    "workspace/staging/model.py": HELD,
    "workspace/staging/overlay.py": HELD,
    "workspace/staging/overlay_helper.py": KERNEL,
    "workspace/staging/private_views.py": STATE,
    "workspace/work_dirs.py": "the empty directory that was just made, opened without following a link",
}
ALLOWED_RECURSIVE: Final = {
    "migrations/layout.py": STATE,
    "workspace/changes/apply.py": DOWN,
    "workspace/changes/merge.py": DOWN,
    "workspace/requirements.py": "an empty directory",
}
MOST_ALLOWED: Final = 30


def dotted(node: ast.expr) -> str:
    """Return ``os.open`` for such a call; of anything else the last name, with a dot before it."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else f".{node.attr}"
    return ""


def calls(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of every call, and of every function that is handed over, of the kinds above."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node.lineno, dotted(node.func)
            for argument in node.args:
                if isinstance(argument, ast.Attribute):
                    yield argument.lineno, dotted(argument)


def is_raw(name: str) -> bool:
    if name.startswith("fs."):  # ``ConfinedFs``
        return False
    return name in RAW or name.rpartition(".")[2] in METHODS or (name.startswith("shutil.") and name not in SHUTIL)


def found() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the raw calls in modules that work on what others change, and the recursive ones anywhere, by module."""
    raw: dict[str, list[str]] = {}
    recursive: dict[str, list[str]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        module = file.relative_to(ROOT).as_posix()
        for line, name in calls(file):
            if name in RECURSIVE or name.endswith(".rglob"):
                recursive.setdefault(module, []).append(f"{line}: {name}")
            elif module.startswith(CHANGED_BY_OTHERS) and is_raw(name):
                raw.setdefault(module, []).append(f"{line}: {name}")
    return raw, recursive


def test_what_others_could_have_changed_is_opened_confined_alone() -> None:
    raw, recursive = found()
    assert {module: lines for module, lines in raw.items() if module not in ALLOWED} == {}
    assert {module: lines for module, lines in recursive.items() if module not in ALLOWED_RECURSIVE} == {}


def test_no_place_is_allowed_that_does_not_need_it() -> None:
    raw, recursive = found()
    assert ALLOWED.keys() - raw.keys() == set()
    assert ALLOWED_RECURSIVE.keys() - recursive.keys() == set()
    assert len(ALLOWED) + len(ALLOWED_RECURSIVE) <= MOST_ALLOWED
