"""A directory with everything that stages, reviews, applies and undoes results, and trees as plain values."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.audit.reporting import AuditResult
from sublet.workspace.changes.apply import Applier
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.export import ViewRules
from sublet.workspace.staging.private_views import Staging
from sublet.workspace.staging.staged_result import ChangeSet
from support.views import default_rules

KEY = "dlg_0123456789abcdef"
OTHER_KEY = f"{KEY}.other"

Snapshot = dict[str, tuple[int, object, int]]


class StagedBench:
    """One lent directory of one daemon, and another one beside it for what is done with several."""

    def __init__(self, base: Path) -> None:
        base = base.resolve()
        self.root = base / "lent"
        self.root.mkdir(exist_ok=True)
        self.other = base / "other"
        self.other.mkdir(exist_ok=True)
        self.state = base / "state"
        self.state.mkdir(mode=0o700, exist_ok=True)
        self.rules: ViewRules = default_rules()
        self.auditor = Auditor(self.state)
        self.staging = Staging(self.state)
        self.changes = ChangeSets(self.state, self.auditor, self.staging)
        self.applier = Applier(self.changes)
        self.report: AuditResult | None = None

    def write(self, path: str, content: str | bytes = "", mode: int = 0o644) -> Path:
        return write(self.root, path, content, mode)

    def begin(self, key: str = KEY) -> Path:
        """Open a view and return the copy that an executor would work in."""
        root = self.other if key == OTHER_KEY else self.root
        view = self.staging.open(key, root, self.rules, want="copy")
        self.changes.begin(view, self.rules)
        assert view.path is not None
        return view.path

    def seal(self, key: str = KEY) -> ChangeSet:
        sealed, self.report = self.changes.seal(key, self.rules)
        return sealed

    @contextlib.contextmanager
    def work(self, key: str = KEY) -> Iterator[Path]:
        """Hand out a view, and seal what was done in it."""
        yield self.begin(key)
        self.seal(key)

    def state_of(self) -> Snapshot:
        return tree_state(self.root)

    def read(self, path: str) -> str:
        return (self.root / path).read_text()


def write(root: Path, path: str, content: str | bytes = "", mode: int = 0o644) -> Path:
    """Make a file with the directories above it."""
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape"))
    target.chmod(mode)
    return target


def tree_state(root: Path) -> Snapshot:
    """Return mode, content and, for files, modification time of each name below ``root``."""
    state: Snapshot = {}
    for path in root.rglob("*"):
        info = path.lstat()
        if path.is_symlink():
            state[str(path.relative_to(root))] = (stat.S_IFLNK, os.readlink(path), 0)
        elif path.is_dir():
            state[str(path.relative_to(root))] = (info.st_mode, None, 0)
        else:
            state[str(path.relative_to(root))] = (info.st_mode, path.read_bytes(), info.st_mtime_ns)
    return state


Tree = Mapping[str, "str | tuple[str, str]"]
"""Content of files by path; ``("link", target)`` and ``("exec", content)`` for the others."""


def make_tree(root: Path, tree: Tree) -> None:
    """Make the directory hold exactly ``tree``, writing only what differs."""
    have = read_tree(root)
    for path in sorted(have):
        if have[path] != tree.get(path):
            (root / path).unlink()
    for directory in sorted((p for p in root.rglob("*") if p.is_dir() and not p.is_symlink()), reverse=True):
        if not any(directory.iterdir()):
            directory.rmdir()
    for path, wanted in tree.items():
        if have.get(path) == wanted:
            continue
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(wanted, tuple) and wanted[0] == "link":
            target.symlink_to(wanted[1])
        else:
            content, mode = (wanted[1], 0o755) if isinstance(wanted, tuple) else (wanted, 0o644)
            write(root, path, content, mode)


def read_tree(root: Path) -> dict[str, str | tuple[str, str]]:
    """Return the files and links below ``root``."""
    found: dict[str, str | tuple[str, str]] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_file():
            content = path.read_text()
            found[name] = ("exec", content) if path.stat().st_mode & 0o100 else content
    return found


def emptied(directory: Path) -> Path:
    """Return ``directory``, made anew and empty."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory
