"""What has to be done to take back an applied plan, as far as nobody has changed what it left."""

from __future__ import annotations

import os
from pathlib import Path

from sublet.workspace.changes.edits import Edit, Make, PlannedEdits
from sublet.workspace.changes.transaction import DISPLACED
from sublet.workspace.changes.transaction_plan import Plan, PlannedStep
from sublet.workspace.changes.tree import PathContents, Tree
from sublet.workspace.staging.staged_result import Conflict


def wanted_by_undo(tree: Tree, done: Plan, directory: Path) -> PlannedEdits:
    """Return the edits that take ``done`` back, and as conflicts what was changed since.

    Args:
        tree: the directory.
        done: the applied plan.
        directory: where its transaction has kept what it displaced.
    """
    wanted = PlannedEdits(drop={step.path for step in done.steps if step.operation == "mkdir"})
    gone = {step.path for step in done.steps if step.operation == "drop"}
    # Where names can't be exchanged, what replaces a file is two steps of one path.
    removed = {step.path: number for number, step in enumerate(done.steps) if step.operation == "take"}
    replaced = {step.path for step in done.steps if step.operation == "put" and step.path in removed}
    for number, step in enumerate(done.steps):
        if step.operation == "drop":
            wanted.directories[step.path] = step.expect.permissions & 0o777
        elif step.operation == "chmod":
            if step.path not in wanted.drop and step.path not in gone:
                _chmod(tree, step, wanted)
        elif step.operation == "put" and step.path not in replaced:
            _put(tree, step, wanted)
        elif step.operation == "put":
            _restore(tree, step, directory / DISPLACED / str(removed[step.path]), wanted)
        elif step.operation == "swap" or (step.operation == "take" and step.path not in replaced):
            _restore(tree, step, directory / DISPLACED / str(number), wanted)
    return wanted


def _put(tree: Tree, step: PlannedStep, wanted: PlannedEdits) -> None:
    assert step.make is not None
    found = tree.look(step.path)
    if found.kind in ("absent", "blocked"):
        wanted.present.append(step.path)
    elif found.content is not None and found.content == step.make.content:
        wanted.edits.append(Edit(step.path, found))
    else:
        wanted.conflicts.append(Conflict(step.path, "content", "it was added, and changed since"))


def _restore(tree: Tree, step: PlannedStep, kept: Path, wanted: PlannedEdits) -> None:
    """Give back what the step has displaced."""
    before = step.expect
    assert before.content is not None
    found = tree.look(step.path)
    if found.content is not None and found.content == before.content:
        wanted.present.append(step.path)
        return
    after = None if step.make is None else step.make.content
    here = None if found.kind in ("absent", "blocked") else found.content
    ours = found.kind == "directory" and step.make is None and step.path in wanted.drop
    if not ours and (here != after or found.kind in ("directory", "special", "closed")):
        detail = "it was changed since" if step.make is not None else "it was removed, and made anew since"
        wanted.conflicts.append(Conflict(step.path, "content", detail, None if before.content.link else kept))
        return
    wanted.edits.append(Edit(step.path, found, _as_before(before, kept)))


def _as_before(before: PathContents, kept: Path) -> Make:
    assert before.content is not None
    link = before.content.link
    return Make(
        content=before.content,
        source=None if link else kept,
        target=os.readlink(os.fsencode(kept)) if link else None,
        permissions=before.permissions,
        modified_ns=before.modified_ns,
        owner=(before.uid, before.gid),
        theirs=None if link else kept,
        original=True,
    )


def _chmod(tree: Tree, step: PlannedStep, wanted: PlannedEdits) -> None:
    found = tree.look(step.path)
    directory = found.kind == step.expect.kind == "directory"
    same = directory or (found.content is not None and step.expect.content is not None)
    if same and found.permissions == step.expect.permissions:
        wanted.present.append(step.path)
    elif same and found.kind in ("file", "directory") and found.permissions == step.permissions:
        # What the file holds now may be the person's: only its permissions go back.
        wanted.edits.append(Edit(step.path, found, permissions=step.expect.permissions))
    else:
        wanted.conflicts.append(Conflict(step.path, "content", "its permissions were changed since"))
