"""The staged results of one delegation as one: every directory that was staged has its own in the workspace layer.

Every method blocks: call it in a thread. Names of files are told as the lease told them: of several directories, each
name begins with its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from sublet.daemon.api.delegation_views import ChangeSet
from sublet.daemon.api.reports import change_set_view, mode_text, with_reason
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
from sublet.daemon.storage.lent_directories import lent_directories, owner_of, staged_keys
from sublet.daemon.storage.records import DelegationRecord
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_name
from sublet.workspace.audit.auditor import MAX_PATCH_BYTES
from sublet.workspace.changes.apply import Applier
from sublet.workspace.changes.branch import Exported, export_branch
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.changes.export import export_patch, not_carried
from sublet.workspace.changes.taking_back import KEPT, make_taking_back
from sublet.workspace.model import ViewRules
from sublet.workspace.staging import model as workspace_changes

log = structlog.get_logger(__name__)

MAX_REVIEWED_FILES: Final = 2_000
"""Files that a review lists one by one; its counts and its patch go on."""
MAX_LEFT_OUT: Final = 50
"""Changes that are on no branch, told one by one."""
MAX_WHOLE_PATCH_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class _Part:
    """One staged directory of a delegation; ``shown`` leads the names of its files."""

    name: str
    key: str
    root: Path
    rules: ViewRules
    shown: str

    def name_of(self, path: bytes) -> str:
        """Return the name of a file as it is shown."""
        return self.shown + clean_name(path)


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
                outcomes, kept = _outcomes(preview), preview.directories
                conflicts += _conflicts(part, preview.conflicts)
                mass_deletion |= bool(preview.mass_deletion)
            files += [_file(part, file, outcomes.get(file.path)) for file in changes.files]
            directories += [_directory(part, one, kept.get(one.path)) for one in changes.directories]
            unread += [part.name_of(path) for path, _ in changes.unread]
            unread_why += [part.shown + with_reason(path, why) for path, why in changes.unread]
        text, truncated = self._patch(record) if patch else (None, False)
        return review.model_copy(
            update={
                "files": files[:MAX_REVIEWED_FILES],
                "directories": directories[:MAX_REVIEWED_FILES],
                "truncated": max(len(files), len(directories)) > MAX_REVIEWED_FILES,
                "conflicts": conflicts[:MAX_REVIEWED_FILES],
                "mass_deletion": mass_deletion,
                "unread": unread[:MAX_REVIEWED_FILES],
                "unread_why": unread_why[:MAX_REVIEWED_FILES],
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
                for conflict in _conflicts(part, self._applier.preview(part.key, part.rules).conflicts)
            ]
            if standing:
                return Applied(delegation_id=record.id, conflicts=standing, change_set=self.changes(record))
        reports = self._applier.apply_all(
            {key: part.rules for key, part in parts.items()},
            partial=request.partial,
            allow_mass_deletion=request.allow_mass_deletion,
        )
        applied, conflicts = _told(parts, reports)
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
        undone, conflicts = _told(parts, self._applier.undo_all(parts))
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
        undone, conflicts = _told(parts, self._applier.take_back(parts))
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
        return told[:MAX_REVIEWED_FILES]

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
    if len(left_out) > MAX_LEFT_OUT:
        left_out = [*left_out[:MAX_LEFT_OUT], f"and {len(left_out) - MAX_LEFT_OUT} more"]
    return Exported(exported[0].commit, left_out)


def kept_places(changes: ChangeSets, record: DelegationRecord) -> dict[str, Path]:
    """Return where it is kept what a live lease overwrites, by the name of the directory."""
    return {name: changes.directory(key) / KEPT for name, key in staged_keys(record).items()}


def _parts(record: DelegationRecord) -> Iterator[_Part]:
    keys = staged_keys(record)
    resources = lent_directories(record)
    for lent in resources:
        if (key := keys.get(lent.name)) is not None:
            yield _Part(lent.name, key, lent.path, lent.rules, f"{lent.name}/" if len(resources) > 1 else "")


def _told(
    parts: Mapping[str, _Part], reports: Mapping[str, workspace_changes.Applied]
) -> tuple[list[str], list[Conflict]]:
    """Return what was changed, and what was not, as it is shown."""
    changed = [
        name
        for key, report in reports.items()
        for name in (
            *map(parts[key].name_of, report.paths),
            *(parts[key].name_of(path) + "/" for path in report.directories),
        )
    ]
    conflicts = [conflict for key, report in reports.items() for conflict in _conflicts(parts[key], report.conflicts)]
    return changed, conflicts


def _outcomes(preview: workspace_changes.Preview) -> dict[bytes, Outcome]:
    outcomes: dict[bytes, Outcome] = {}
    outcomes |= dict.fromkeys(preview.clean, "clean")
    outcomes |= dict.fromkeys(preview.present, "present")
    outcomes |= dict.fromkeys(preview.merged, "merged")
    outcomes |= {conflict.path: "conflict" for conflict in preview.conflicts}
    return outcomes


def _conflicts(part: _Part, conflicts: tuple[workspace_changes.Conflict, ...]) -> list[Conflict]:
    """Return conflicts with where the two versions lie."""
    return [
        Conflict(
            path=part.name_of(conflict.path),
            reason=conflict.detail,
            yours=None if conflict.kind == "deleted_here" else _place(part, conflict.path),
            theirs=_place(part, conflict.kept_as)
            if conflict.kept_as is not None
            else clean_name(str(conflict.theirs))
            if conflict.theirs is not None
            else None,
        )
        for conflict in conflicts
    ]


def _place(part: _Part, path: bytes) -> str:
    return clean_name(bytes(part.root) + b"/" + path)


def _file(part: _Part, file: workspace_changes.ChangedPath, outcome: Outcome | None) -> ReviewedFile:
    return ReviewedFile(
        path=part.name_of(file.path),
        change=file.change,
        renamed_from=None if file.renamed_from is None else part.name_of(file.renamed_from),
        lines_added=file.lines_added,
        lines_deleted=file.lines_deleted,
        outcome=outcome,
        mode_before=mode_text(file.mode_before),
        mode_after=mode_text(file.mode_after),
    )


def _directory(
    part: _Part, directory: workspace_changes.DirectoryChange, outcome: DirectoryOutcome | None
) -> ReviewedDirectory:
    return ReviewedDirectory(
        path=part.shown + directory.shown,
        change=directory.change,
        mode_before=mode_text(directory.before),
        mode_after=mode_text(directory.after),
        outcome=outcome,
    )
