"""What a staged delegation serves: private views of its directories, and the result that is taken out of them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from sublet.daemon.audits import audited
from sublet.daemon.background import in_background
from sublet.daemon.journal import Journal
from sublet.daemon.lent_resources import lent_directories, owner_of, staged_keys
from sublet.daemon.lent_tree import LentTree, LiveTree
from sublet.daemon.models import ChangeSet as ChangeSetView
from sublet.daemon.records import DelegationRecord
from sublet.daemon.reports import change_set_view
from sublet.daemon.result_store import put_on_branch
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit import Auditor, AuditResult, ChangedFile
from sublet.workspace.change_set import ChangeSets
from sublet.workspace.model import LeaseUsage, LentDirectory
from sublet.workspace.staging import Staging
from sublet.workspace.staging_model import ChangedPath, ChangeSet, StagedView, no_result

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Trees:
    """Makes what each delegation serves; the composition root makes it once."""

    journal: Journal
    auditor: Auditor
    staging: Staging
    changes: ChangeSets

    def of(self, record: DelegationRecord) -> LentTree:
        """Return what the delegation of ``record`` serves, or served.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` for a bad pattern.
        """
        live = LiveTree(lent_directories(record), self.auditor, record.request.git)
        return StagedTree(record, live, self) if record.request.result_mode == "staged" else live

    async def reap(self) -> None:
        """Remove views and results that belong to no delegation any more, and views that were never finished."""
        known = await self.journal.delegation_ids()
        await in_background(self._reap, known)

    def _reap(self, known: Collection[str]) -> None:
        views, results = self.staging.keys(), self.changes.all_keys()
        gone = self.staging.reap([key for key in views if owner_of(key) in known])
        if gone:
            log.warning("stale private views were removed", views=gone)
        for key in results:
            if owner_of(key) not in known:
                self.changes.discard(key)


class StagedTree:
    """Private views in place of the directories that are lent for writing; the others are served themselves.

    Where none is lent for writing, the one to work in is staged, so that what is read does not move.
    """

    def __init__(self, record: DelegationRecord, live: LiveTree, trees: Trees) -> None:
        self.resources = live.resources
        self._id = record.id
        self._live = live
        self._trees = trees
        self._keys: Mapping[str, str] = staged_keys(record)
        self._lock = threading.Lock()
        self._making = False
        self._dropped = False

    async def baseline(self) -> dict[str, str]:
        """``LentTree.baseline``: make the views, and record what is in them."""
        for key in self._keys.values():
            await self._trees.journal.acquire(self._id, "view", {"key": key})
        made = await in_background(self._make)
        self.resources = tuple(_served(lent, made.views.get(lent.name)) for lent in self._live.resources)
        return made.snapshots

    async def take_up(self) -> None:
        """``LentTree.take_up``: find the views."""
        found = await in_background(self._find)
        self.resources = tuple(_served(lent, found.get(lent.name)) for lent in self._live.resources)

    async def check(self) -> None:
        """``LentTree.check``: views are made of what policy was asked for, and nobody else can reach them."""
        others = tuple(lent for lent in self._live.resources if lent.name not in self._keys)
        await LiveTree(others, self._trees.auditor, "hidden").check()

    async def report(self, record: DelegationRecord, usage: LeaseUsage) -> dict[str, object]:
        """``LentTree.report``: the change set, and an audit that says the same; views are gone afterwards."""
        if record.change_set is not None:
            return {}
        sealed: dict[str, ChangeSet] = {}

        def seal(lent: LentDirectory) -> AuditResult:
            sealed[lent.name], report = self._seal(self._keys[lent.name], lent)
            return report

        staged = dict.fromkeys(self._keys, seal)
        news = await audited(self._trees.auditor, record, self._live.resources, usage, staged)
        if sealed.keys() == self._keys.keys():
            changes = change_set_view(sealed.values())
            if record.request.result_branch is not None and record.result is not None and record.error is None:
                changes = await in_background(self._on_branch, record, changes, record.request.result_branch)
            news["change_set"] = changes
        return news

    async def drop(self) -> None:
        """``LentTree.drop``: remove the views, now or as soon as they are made."""
        with self._lock:
            self._dropped = True
            making = self._making
        if not making:
            await in_background(self._remove)

    def _make(self) -> _Made:
        with self._lock:
            self._making = True
        made = _Made({}, {})
        try:
            for lent in self._live.resources:
                if (key := self._keys.get(lent.name)) is not None:
                    view = self._trees.staging.open(key, lent.path, lent.rules)
                    made.views[lent.name] = view
                    made.snapshots[lent.name] = self._trees.changes.begin(view, lent.rules)
                else:
                    made.snapshots[lent.name] = self._trees.auditor.baseline(lent.path, lent.rules)
        finally:
            with self._lock:
                self._making = False
                dropped = self._dropped
            if dropped:
                self._remove()
        return made

    def _find(self) -> dict[str, StagedView]:
        found = {name: self._trees.staging.find(key) for name, key in self._keys.items()}
        there = {name: view for name, view in found.items() if view is not None}
        if there.keys() != found.keys():
            raise no_result(self._id)
        return there

    def _seal(self, key: str, lent: LentDirectory) -> tuple[ChangeSet, AuditResult]:
        """Take the result out of a view; one that was taken out already, before a crash, is told again."""
        try:
            return self._trees.changes.seal(key, lent.rules)
        except SubletError as error:
            if error.code is not LocalCode.NOT_FOUND:
                raise
            changes = self._trees.changes.get(key)
            return changes, _told_again(changes)

    def _on_branch(self, record: DelegationRecord, changes: ChangeSetView, branch: str) -> ChangeSetView:
        """Put the result on the branch that was asked for; why that can't be done is told, and the result stays."""
        try:
            put_on_branch(self._trees.changes, record, branch)
        except (OSError, SubletError) as error:
            log.warning("a result could not be put on a branch", delegation_id=self._id, reason=str(error))
            return changes.model_copy(update={"branch_error": str(error)})
        return changes.model_copy(update={"branch": branch})

    def _remove(self) -> None:
        for key in self._keys.values():
            try:
                self._trees.changes.discard(key)
            except (OSError, SubletError) as error:
                log.warning("a private view could not be removed", key=key, reason=str(error))


@dataclass(frozen=True, slots=True)
class _Made:
    """Views and snapshots, by the name of the directory."""

    views: dict[str, StagedView]
    snapshots: dict[str, str]


def _served(lent: LentDirectory, view: StagedView | None) -> LentDirectory:
    return lent if view is None else replace(lent, open_root=view.open_root)


def _told_again(changes: ChangeSet) -> AuditResult:
    """Return the audit that a change set amounts to."""
    files = [file for change in changes.files for file in _files(change)]
    return AuditResult(
        baseline=changes.baseline,
        result=changes.result,
        files=tuple(sorted(files, key=lambda file: file.path)),
        lines_added=changes.counts.lines_added,
        lines_deleted=changes.counts.lines_deleted,
        unaudited=changes.unread,
    )


def _files(change: ChangedPath) -> list[ChangedFile]:
    if change.change != "renamed":
        return [ChangedFile(change.path, change.change, "executor", change.lines_added, change.lines_deleted)]
    added = ChangedFile(change.path, "added", "executor", change.lines_added, change.lines_deleted)
    return [added] if change.renamed_from is None else [added, ChangedFile(change.renamed_from, "deleted", "executor")]
