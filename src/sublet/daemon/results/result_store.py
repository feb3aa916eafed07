"""The staged results of one delegation as one: every directory that was staged has its own in the workspace layer.

Every method blocks: call it in a thread. Names of files are told as the lease told them: of several directories, each
name begins with its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from sublet.daemon.api.delegation_views import ChangeSet
from sublet.daemon.api.listing import listed
from sublet.daemon.api.reports import change_set_view, with_reason
from sublet.daemon.api.results import (
    Applied,
    ApplyResult,
    Conflict,
    DirectoryOutcome,
    Outcome,
    Review,
    ReviewedDirectory,
    ReviewedFile,
    Undone,
)
from sublet.daemon.results.result_views import (
    ResultPart,
    conflicts_of,
    names_told,
    outcomes_of,
    reviewed_directory,
    reviewed_file,
)
from sublet.daemon.storage.lent_directories import lent_directories, owner_of, staged_keys
from sublet.daemon.storage.records import DelegationRecord
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.reporting import MAX_PATCH_BYTES
from sublet.workspace.changes.apply import Applier
from sublet.workspace.changes.branch import Exported, export_branch
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.changes.export import export_patch, not_carried
from sublet.workspace.changes.taking_back import KEPT, make_taking_back

log = structlog.get_logger(__name__)

MAX_REVIEWED_FILES: Final = 2_000
"""Files that a review lists one by one; its counts and its patch go on."""
MAX_LEFT_OUT: Final = 50
"""Changes that are on no branch, told one by one."""
MAX_WHOLE_PATCH_BYTES: Final = 32 << 20


class ResultStore:
    """Reviews, applies and takes back the results of a delegation.

    Args:
        changes: keeps the change sets.
        applier: applies them.
    """

    def __init__(self, changes: ChangeSets, applier: Applier) -> None:
        self._changes = changes
        self._applier = applier

    def directories(self, record: DelegationRecord) -> list[Path]:
        """Return the real paths of the directories that applying changes."""
        return [part.root for part in _parts(record)]

    def changes(self, record: DelegationRecord) -> ChangeSet:
        """Return the counts and what became of the result.

        Raises:
            SubletError: ``NOT_FOUND`` where there is none.
        """
        assert record.change_set is not None
        found = change_set_view(self._changes.get(part.key) for part in _parts(record))
        return found.model_copy(
            update={
                "branch": record.change_set.branch,
                "branch_error": record.change_set.branch_error,
                "branch_left_out": record.change_set.branch_left_out,
            }
        )

    def review(self, record: DelegationRecord, patch: bool) -> Review:
        """Return what a result would change, and what applying it now would come to.

        Raises:
            SubletError: ``NOT_FOUND`` where it is gone, or what keeps the directory from being compared.
        """
        assert record.change_set is not None
        review = Review(delegation_id=record.id, workspace_dir=record.workspace, change_set=record.change_set)
        if record.change_set.status == "discarded":
            return review.model_copy(update={"patch": "" if patch else None})
        files: list[ReviewedFile] = []
        directories: list[ReviewedDirectory] = []
        conflicts: list[Conflict] = []
        unread: list[str] = []
        unread_why: list[str] = []
        mass_deletion = False
        for part in _parts(record):
            changes = self._changes.get(part.key)
            outcomes: dict[bytes, Outcome] = {}
            kept: dict[bytes, DirectoryOutcome] = {}
            if changes.status in ("pending", "undone"):
                preview = self._applier.preview(part.key, part.rules)
                outcomes, kept = outcomes_of(preview), preview.directories
                conflicts += conflicts_of(part, preview.conflicts)
                mass_deletion |= bool(preview.mass_deletion)
            files += [reviewed_file(part, file, outcomes.get(file.path)) for file in changes.files]
            directories += [reviewed_directory(part, one, kept.get(one.path)) for one in changes.directories]
            unread += [part.name_of(path) for path, _ in changes.unread]
            unread_why += [part.shown + with_reason(path, why) for path, why in changes.unread]
        text, truncated = self._patch(record) if patch else (None, False)
        told_files = listed(files, MAX_REVIEWED_FILES, lambda one: one.path)
        told_directories = listed(directories, MAX_REVIEWED_FILES, lambda one: one.path)
        return review.model_copy(
            update={
                "files": told_files,
                "directories": told_directories,
                "truncated": (len(told_files), len(told_directories)) != (len(files), len(directories)),
                "conflicts": listed(conflicts, MAX_REVIEWED_FILES, lambda one: one.path),
                "mass_deletion": mass_deletion,
                "unread": listed(unread, MAX_REVIEWED_FILES),
                "unread_why": listed(unread_why, MAX_REVIEWED_FILES),
                "unread_count": len(unread),
                "patch": text,
                "patch_truncated": truncated,
            }
        )

    def apply(self, record: DelegationRecord, request: ApplyResult) -> Applied:
        """Merge a result into the directories: all of them, or none.

        Raises:
            SubletError: ``CONFLICT`` for a mass deletion that is not allowed, or what keeps it from being applied;
                then nothing is changed.
        """
        parts = {part.key: part for part in _parts(record)}
        if not request.partial and len(parts) > 1:
            # What stands in the way is told of all of them at once.
            standing = [
                conflict
                for part in parts.values()
                for conflict in conflicts_of(part, self._applier.preview(part.key, part.rules).conflicts)
            ]
            if standing:
                return Applied(delegation_id=record.id, conflicts=standing, change_set=self.changes(record))
        reports = self._applier.apply_all(
            {key: part.rules for key, part in parts.items()},
            partial=request.partial,
            allow_mass_deletion=request.allow_mass_deletion,
        )
        applied, conflicts = names_told(parts, reports)
        changes = self.changes(record)
        return Applied(
            delegation_id=record.id,
            applied=applied,
            conflicts=conflicts,
            change_set=changes,
            undo=record.id if changes.status in ("applied", "partly_applied") else None,
        )

    def changed(self, record: DelegationRecord) -> dict[str, tuple[bytes, ...]]:
        """Return, by the name of the directory, which paths applying has changed in it.

        Raises:
            SubletError: ``UNAVAILABLE`` where that can't be read.
        """
        return {part.name: self._applier.changed(part.key) for part in _parts(record)}

    def undo(self, record: DelegationRecord) -> Undone:
        """Take back what was applied: in all directories, or in none.

        Raises:
            SubletError: what keeps it from being taken back.
        """
        parts = {
            part.key: part
            for part in _parts(record)
            if self._changes.get(part.key).status in ("applied", "partly_applied")
        }
        undone, conflicts = names_told(parts, self._applier.undo_all(parts))
        return Undone(delegation_id=record.id, undone=undone, conflicts=conflicts, change_set=self.changes(record))

    def take_back(self, record: DelegationRecord) -> Undone:
        """Take back what a live lease wrote, merged with what changed since: in all directories, or in none.

        Raises:
            SubletError: ``CONFLICT`` where that was done already, ``NOT_FOUND`` where what was there before is not
                kept; or what keeps it from being restored.
        """
        parts = {
            part.key: part
            for part in _parts(record)
            if part.name in record.snapshots and part.name in record.result_snapshots
        }
        if any(self._is_taken_back(key) for key in parts):
            raise SubletError(LocalCode.CONFLICT, f"{record.id} was taken back already", "There is nothing to do.")
        for part in parts.values():
            before, after = record.snapshots[part.name], record.result_snapshots[part.name]
            make_taking_back(self._changes, part.key, part.root, before, after)
        if not parts:
            raise SubletError(
                LocalCode.NOT_FOUND, f"{record.id} changed nothing that could be taken back", "There is nothing to do."
            )
        undone, conflicts = names_told(parts, self._applier.take_back(parts))
        changes = change_set_view(self._changes.get(key) for key in parts)
        told = changes.model_copy(update={"status": "undone"})
        return Undone(delegation_id=record.id, undone=undone, conflicts=conflicts, change_set=told)

    def _is_taken_back(self, key: str) -> bool:
        self._applier.recover(key)
        with suppress(SubletError):
            return self._changes.get(key).status in ("applied", "partly_applied")
        return False

    def branch(self, record: DelegationRecord, name: str) -> Exported:
        """Put a result on a new branch of each repository that it is of.

        Returns:
            The first commit, and what is on none of the branches.

        Raises:
            SubletError: as ``export_branch``.
        """
        return put_on_branch(self._changes, record, name)

    def left_out(self, record: DelegationRecord) -> list[str]:
        """Return what of a result neither a branch nor a patch carries, as it is shown.

        Raises:
            SubletError: ``NOT_FOUND`` where it is gone.
        """
        told = [part.shown + line for part in _parts(record) for line in not_carried(self._changes, part.key)]
        return listed(told, MAX_REVIEWED_FILES)

    def whole_patch(self, record: DelegationRecord) -> bytes:
        """Return a result as a patch for ``git apply``.

        Raises:
            SubletError: as ``export_patch``; ``UNAVAILABLE`` where it is too large, or of several directories.
        """
        [part, *others] = _parts(record)
        if others:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                "a result in several directories is no single patch",
                f"See it with `sublet review {record.id}`, or apply it.",
            )
        patch = export_patch(self._changes, part.key)
        if len(patch) > MAX_WHOLE_PATCH_BYTES:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"the patch is larger than {MAX_WHOLE_PATCH_BYTES >> 20} MiB",
                f"Put it on a branch: sublet apply {record.id} --branch NAME",
            )
        return patch

    def discard(self, record: DelegationRecord) -> None:
        """Remove a result. Removing twice is no error."""
        for part in _parts(record):
            self._changes.discard(part.key)

    def recover(self) -> list[str]:
        """Finish or take back what a crash has cut short, and return the delegations that it concerns."""
        found = self._applier.recover_all()
        for key, error in found.items():
            if error is not None:
                log.error("an apply that was cut short could not be recovered", key=key, reason=str(error))
        return sorted({owner_of(key) for key in found})

    def _patch(self, record: DelegationRecord) -> tuple[str, bool]:
        text, truncated = "", False
        for part in _parts(record):
            left = max(0, MAX_PATCH_BYTES - len(text))
            if part.shown:
                found = self._changes.get(part.key)
                made = self._changes.auditor.patch(part.root, found.baseline, found.result, below=part.name, limit=left)
            else:
                made = self._changes.patch(part.key, limit=left)
            text += made.text
            truncated |= made.truncated
        return text, truncated


def put_on_branch(changes: ChangeSets, record: DelegationRecord, name: str) -> Exported:
    """Put a result on a new branch of each repository that it is of.

    Returns:
        The first commit, and what is on none of the branches, at most ``MAX_LEFT_OUT`` lines of it.

    Raises:
        SubletError: as ``export_branch``.
    """
    message = f"{record.description}\n\nWork of {record.peer} in the delegation {record.id}."
    parts = list(_parts(record))
    exported = [export_branch(changes, part.key, part.rules, name, message) for part in parts]
    left_out = [part.shown + line for part, one in zip(parts, exported, strict=True) for line in one.left_out]
    told = listed(left_out, MAX_LEFT_OUT)
    if len(told) < len(left_out):
        left_out = [*told, f"and {len(left_out) - len(told)} more"]
    return Exported(exported[0].commit, left_out)


def kept_places(changes: ChangeSets, record: DelegationRecord) -> dict[str, Path]:
    """Return where it is kept what a live lease overwrites, by the name of the directory."""
    return {name: changes.directory(key) / KEPT for name, key in staged_keys(record).items()}


def _parts(record: DelegationRecord) -> Iterator[ResultPart]:
    keys = staged_keys(record)
    resources = lent_directories(record)
    for lent in resources:
        if (key := keys.get(lent.name)) is not None:
            yield ResultPart(lent.name, key, lent.path, lent.rules, f"{lent.name}/" if len(resources) > 1 else "")
