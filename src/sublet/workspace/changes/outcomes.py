"""What becomes of the files and directories of a change set: where conflicts go, and what is told of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from sublet.workspace.changes.edits import Operation, PlannedEdits, Step, add_above
from sublet.workspace.changes.record import ChangeRecord
from sublet.workspace.changes.transaction_plan import Plan
from sublet.workspace.changes.tree import PathContents, Tree
from sublet.workspace.export import ViewRules
from sublet.workspace.staging.staged_result import Conflict, ConflictKind, DirectoryOutcome

MAX_NAME_BYTES: Final = 255
_SIDE_NAMES: Final = 9


def side_name(tree: Tree, rules: ViewRules, path: bytes, suffix: bytes, taken: set[bytes]) -> bytes | None:
    """Return a free name beside ``path``, or beside what is in the way above it."""
    blocker = tree.blocker(path)
    at = path if blocker is None else blocker
    above, slash, name = at.rpartition(b"/")
    for number in range(1, _SIDE_NAMES + 1):
        end = suffix if number == 1 else suffix + b"-%d" % number
        place = above + slash + name[: MAX_NAME_BYTES - len(end)] + end + path[len(at) :]
        parts = place.split(b"/")
        if rules.hidden(parts) or rules.locked(parts):
            return None
        if place not in taken and tree.look(place).kind == "absent":
            return place
    return None


_SINCE: Final[Mapping[ConflictKind, str]] = {
    "content": "the same lines were changed since",
    "binary": "it was changed since, and is not text or too large to merge",
    "deleted_there": "the lease made it, and it was changed since",
    "deleted_here": "it was removed since",
    "both_added": "the lease removed it, and it was made anew since",
    "type": "it is something else now",
    "directory": "a directory is in the way",
}


def told_since(wanted: PlannedEdits) -> list[Conflict]:
    """Return the conflicts of taking a lease back in words that fit."""
    return [dataclasses.replace(one, detail=_SINCE.get(one.kind, one.detail)) for one in wanted.conflicts]


def directory_outcomes(
    record: ChangeRecord, tree: Tree, wanted: PlannedEdits, steps: Iterable[Step]
) -> dict[bytes, DirectoryOutcome]:
    """Return what becomes of each directory that the change set names."""
    changed = {step.path for step in steps if _is_of_directory(step.operation, step.expect)}
    conflicts = {conflict.path for conflict in wanted.conflicts}
    outcomes: dict[bytes, DirectoryOutcome] = {}
    for directory in record.directories:
        path = directory.path
        if path in conflicts:
            outcomes[path] = "conflict"
        elif path in changed:
            outcomes[path] = "clean"
        elif directory.after is None and tree.look(path).kind == "directory":
            outcomes[path] = "stays"
        elif directory.after is not None and tree.look(path).kind != "directory":
            outcomes[path] = "conflict"
        else:
            outcomes[path] = "present"
    return outcomes


def _is_of_directory(operation: Operation, expect: PathContents) -> bool:
    made = operation == "chmod" and expect.kind in ("directory", "absent")
    return made or operation in ("mkdir", "drop")


def changed_files(plan: Plan) -> tuple[bytes, ...]:
    """Return the files and links that a plan changes."""
    return tuple(sorted({s.path for s in plan.steps if not _is_of_directory(s.operation, s.expect)}))


def changed_directories(plan: Plan) -> tuple[bytes, ...]:
    """Return the directories that a plan makes, removes, or gives other permissions.

    One that is made for a file in it, or goes with the files in it, is told by those.
    """
    with_files: set[bytes] = set()
    for path in changed_files(plan):
        add_above(with_files, path)
    return tuple(
        sorted(
            {
                step.path
                for step in plan.steps
                if _is_of_directory(step.operation, step.expect)
                and (step.operation == "chmod" or step.path not in with_files)
            }
        )
    )
