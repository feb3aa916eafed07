"""Edits of a directory and the order in which they can be made: what goes, what directories, what comes."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sublet.workspace.changes.record import DIRECTORY_PERMISSIONS, Content
from sublet.workspace.changes.tree import ABSENT, PathContents, Tree
from sublet.workspace.export import ViewRules
from sublet.workspace.staging.staged_result import Conflict

Operation = Literal["take", "drop", "mkdir", "put", "swap", "chmod"]
"""``take`` a file or link away, ``drop`` an empty directory, make a directory, ``put`` a new file or link where nothing
is, ``swap`` one for what is there, change permissions (of what the plan itself has made where ``expect`` is absent)."""


@dataclass(frozen=True, slots=True)
class Make:
    """A file or link to be made. ``source`` is the file in the state directory that holds its content.

    What is made of one source becomes one file with several names, but for what is ``alone``. Group, access list and
    extended attributes are those of the file that is replaced; where ``source`` is the very file that was there before
    (``original``), they are its own.
    """

    content: Content
    source: Path | None = None
    target: bytes | None = None
    permissions: int = 0o644
    modified_ns: int | None = None
    owner: tuple[int, int] | None = None
    theirs: Path | None = None
    alone: bool = False
    original: bool = False


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: remove (neither ``make`` nor ``permissions``), write, or change permissions.

    ``expect`` is what was at the path when it was looked at; the edit is off where that has changed since.
    """

    path: bytes
    expect: PathContents
    make: Make | None = None
    permissions: int | None = None

    @property
    def removes(self) -> bool:
        """Whether nothing is left at the path."""
        return self.make is None and self.permissions is None

    @property
    def of_directory(self) -> bool:
        """Whether it gives a directory other permissions."""
        return self.permissions is not None and self.expect.kind == "directory"


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a plan, in order."""

    operation: Operation
    path: bytes
    expect: PathContents
    make: Make | None = None
    permissions: int = 0


@dataclass(slots=True)
class PlannedEdits:
    """What is to be done to a directory: edits, directories to make with their permissions, and to drop if empty."""

    edits: list[Edit] = field(default_factory=list)
    directories: dict[bytes, int] = field(default_factory=dict)
    drop: set[bytes] = field(default_factory=set)
    conflicts: list[Conflict] = field(default_factory=list)
    merged: list[bytes] = field(default_factory=list)
    present: list[bytes] = field(default_factory=list)


def fit(tree: Tree, rules: ViewRules | None, wanted: PlannedEdits) -> None:
    """Move the edits that files and directories are in the way of from ``wanted.edits`` to its conflicts.

    ``rules`` name what is never changed; None where the delegator's own state is restored.
    """
    emptying = _Emptying(tree, {edit.path for edit in wanted.edits if edit.removes}, wanted.drop)
    removed = emptying.removed
    kept: list[Edit] = []
    for edit in wanted.edits:
        problem = "" if edit.make is None else _in_the_way(tree, edit, emptying)
        if problem:
            wanted.conflicts.append(
                Conflict(edit.path, "directory", problem, edit.make.theirs if edit.make is not None else None)
            )
        else:
            kept.append(edit)
    wanted.edits = kept
    told = {above for conflict in wanted.conflicts for above in _above(conflict.path)}
    for path in list(wanted.directories):
        blocker = tree.blocker(path)
        blocked = blocker is not None and blocker not in removed
        free = path in removed or tree.look(path).kind in ("absent", "directory", "blocked")
        guarded = _guarded(path, rules)
        if guarded or blocked or not free:
            del wanted.directories[path]
            if not guarded and path not in told:
                wanted.conflicts.append(Conflict(path, "directory", "a directory was made where a file is"))


def order(tree: Tree, rules: ViewRules | None, wanted: PlannedEdits) -> list[Step]:
    """Return the steps that make what ``fit`` has left of ``wanted``."""
    removed = {edit.path for edit in wanted.edits if edit.removes}
    needed = dict(wanted.directories)
    for edit in wanted.edits:
        if edit.make is not None:
            for above in _above(edit.path):
                needed.setdefault(above, DIRECTORY_PERMISSIONS)
    for path in list(needed):
        for above in _above(path):
            needed.setdefault(above, DIRECTORY_PERMISSIONS)
    drop = {path for path in wanted.drop if path not in needed and not _guarded(path, rules)}
    emptying = _Emptying(tree, removed, drop)
    dropped = {path for path in drop if emptying.empties(path)}
    dropping = [(path, tree.look(path)) for path in sorted(dropped, key=_depth, reverse=True)]
    modes = [(edit, edit.permissions) for edit in wanted.edits if edit.permissions is not None]
    opening = [(edit, mode) for edit, mode in modes if _opens(edit, mode)]
    # What keeps its own owner from changing what is in it is opened first, and shut last.
    steps = [Step("chmod", edit.path, edit.expect, permissions=mode) for edit, mode in sorted(opening, key=_edit_depth)]
    steps += [
        Step("chmod", path, found, permissions=found.permissions | stat.S_IRWXU)
        for path, found in reversed(dropping)
        if _is_shut(found.permissions)
    ]
    steps += [Step("take", edit.path, edit.expect) for edit in wanted.edits if edit.removes]
    steps += [Step("drop", path, found) for path, found in dropping]
    shut: list[Step] = []
    for path, mode in sorted(needed.items(), key=lambda item: _depth(item[0])):
        found = tree.look(path)
        if found.kind != "directory":
            steps.append(Step("mkdir", path, found, permissions=mode | stat.S_IRWXU))
            if _is_shut(mode):
                shut.append(Step("chmod", path, ABSENT, permissions=mode))
    for edit in wanted.edits:
        if edit.make is not None:
            there = edit.expect.kind in ("file", "link")
            steps.append(Step("swap" if there else "put", edit.path, edit.expect, edit.make))
    shut += [Step("chmod", edit.path, edit.expect, permissions=mode) for edit, mode in modes if not _opens(edit, mode)]
    return [*steps, *sorted(shut, key=lambda step: _depth(step.path), reverse=True)]


def _edit_depth(opening: tuple[Edit, int]) -> int:
    return _depth(opening[0].path)


def _opens(edit: Edit, mode: int) -> bool:
    """Tell whether a directory's owner may do more in it afterwards, and no less."""
    before = edit.expect.permissions & stat.S_IRWXU
    return edit.expect.kind == "directory" and mode & before == before and mode & stat.S_IRWXU != before


def _is_shut(permissions: int) -> bool:
    return permissions & stat.S_IRWXU != stat.S_IRWXU


def _in_the_way(tree: Tree, edit: Edit, emptying: _Emptying) -> str:
    blocker = tree.blocker(edit.path)
    if blocker is not None and blocker not in emptying.removed:
        return "a name above it is no directory here"
    if edit.expect.kind == "directory" and not emptying.empties(edit.path):
        return "there is a directory here, and it holds what the executor never saw"
    return ""


class _Emptying:
    """Tells which directories go. Each is listed once, however many directories above it go as well.

    Args:
        tree: the directory.
        removed: names that are removed, and no directories.
        drop: directories that are to go where they are empty by then.
    """

    def __init__(self, tree: Tree, removed: set[bytes], drop: set[bytes]) -> None:
        self._tree = tree
        self.removed = removed
        self._drop = drop
        self._known: dict[bytes, bool] = {}

    def empties(self, path: bytes) -> bool:
        """Tell whether the directory goes: it is to be dropped, and all that is in it goes before it."""
        if path not in self._drop:
            return False
        if path not in self._known:
            self._known[path] = self._all_go(path)
        return self._known[path]

    def _all_go(self, path: bytes) -> bool:
        try:
            names = self._tree.names(path)
        except OSError:
            return False
        inside = (path + b"/" + name for name in names)
        return all(child in self.removed or self.empties(child) for child in inside)


def add_above(directories: set[bytes], path: bytes) -> None:
    """Add the directories above ``path``; where one is there, those above it are."""
    end = path.rfind(b"/")
    while end > 0 and path[:end] not in directories:
        directories.add(path[:end])
        end = path.rfind(b"/", 0, end)


def _guarded(path: bytes, rules: ViewRules | None) -> bool:
    parts = path.split(b"/")
    return rules is not None and (rules.hidden(parts) or rules.locked(parts))


def _above(path: bytes) -> Iterable[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:end]) for end in range(1, len(parts))]


def _depth(path: bytes) -> int:
    return path.count(b"/")
