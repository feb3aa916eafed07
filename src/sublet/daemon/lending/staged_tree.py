"""What a staged delegation serves: private views of its directories, and the result that is taken out of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import structlog

from sublet.daemon.api.delegation_views import ChangeSet as ChangeSetView
from sublet.daemon.api.listing import listed
from sublet.daemon.api.reports import change_set_view
from sublet.daemon.api.results import ApplyResult, Conflict
from sublet.daemon.lending.audits import audited
from sublet.daemon.lending.lent_tree import LentTree, LiveTree
from sublet.daemon.results.result_store import ResultStore, kept_places, put_on_branch
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.lent_directories import lent_directories, owner_of, staged_keys
from sublet.daemon.storage.records import DelegationRecord, error_view
from sublet.daemon.storage.resource_log import PANEL
from sublet.daemon.tasks.background import in_background
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_name
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.audit.comparing import ChangedDirectory, ChangedFile
from sublet.workspace.audit.reporting import AuditResult
from sublet.workspace.changes.apply import Applier
from sublet.workspace.changes.change_set import ChangeSets
from sublet.workspace.export import LeaseUsage, LentDirectory
from sublet.workspace.staging.private_views import Staging
from sublet.workspace.staging.staged_result import ChangedPath, ChangeSet, StagedView, no_result
from sublet.workspace.view.own_rules import with_own

MAX_LEFT_BEHIND: Final = 200
"""Changes that a record lists which came back and were not made."""

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
        apart = record.request.result_mode == "staged" or comes_back(record)
        kept = {} if apart else kept_places(self.changes, record)
        live = LiveTree(lent_directories(record), self.auditor, record.request.git, kept)
        if record.request.result_mode == "staged":
            return StagedTree(record, live, self)
        return ReturnedTree(record, live, self) if comes_back(record) else live

    async def reap(self) -> None:
        """Remove views and results that belong to no delegation any more, and views that were never finished."""
        known = await self.journal.forgettable.delegation_ids()
        panels = {held.owner for held in await self.journal.resources.open_resources() if held.kind == PANEL}
        await in_background(self._reap, known | panels)

    def _reap(self, known: Collection[str]) -> None:
        views, results = self.staging.keys(), self.changes.all_keys()
        gone = self.staging.reap([key for key in views if owner_of(key) in known])
        if gone:
            log.warning("stale private views were removed", views=gone)
        for key in results:
            if owner_of(key) not in known:
                self.changes.clear(key)


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
        self._panel = record.panel
        self._lock = threading.Lock()
        self._making = False
        self._dropped = False

    async def baseline(self) -> dict[str, str]:
        """``LentTree.baseline``: make the views, and record what is in them."""
        for key in self._keys.values():
            await self._trees.journal.resources.acquire(self._id, "view", {"key": key})
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
        if comes_back(record) and not (usage.returned or record.returned):
            # What has come of it may be half of a file: it must not be taken for a result.
            await self.drop()
            return {"audit_error": error_view(_not_returned())}
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
                    view = self._trees.staging.open(
                        key, lent.path, lent.rules, shared=self._panel.id if self._panel is not None else None
                    )
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
            keeps = self._panel is not None and self._panel.check is not None
            return self._trees.changes.seal(key, lent.rules, keep_view=keeps)
        except SubletError as error:
            if error.code is not LocalCode.NOT_FOUND:
                raise
            changes = self._trees.changes.get(key)
            return changes, _told_again(changes)

    def _on_branch(self, record: DelegationRecord, changes: ChangeSetView, branch: str) -> ChangeSetView:
        """Put the result on the branch that was asked for; why that can't be done is told, and the result stays."""
        try:
            exported = put_on_branch(self._trees.changes, record, branch)
        except (OSError, SubletError) as error:
            log.warning("a result could not be put on a branch", delegation_id=self._id, reason=str(error))
            return changes.model_copy(update={"branch_error": str(error)})
        return changes.model_copy(update={"branch": branch, "branch_left_out": exported.left_out})

    def _remove(self) -> None:
        for key in self._keys.values():
            try:
                self._trees.changes.discard(key)
            except (OSError, SubletError) as error:
                log.warning("a private view could not be removed", key=key, reason=str(error))


class ReturnedTree(StagedTree):
    """Private views for a transport that brings changes back at the end, which are then merged into the directories.

    Nobody has to look at them first, as nobody has with a mount. But the delegator may have gone on working meanwhile:
    what both sides changed in ways that can't be merged stays as the delegator has it, with the executor's version
    beside it. All of it can be taken back, as any staged result.
    """

    async def baseline(self) -> dict[str, str]:
        """``LentTree.baseline``: make the views; what is audited in the end are the directories themselves."""
        await super().baseline()
        return await self._live.baseline()

    async def report(self, record: DelegationRecord, usage: LeaseUsage) -> dict[str, object]:
        """``LentTree.report``: what was merged, what was not, and the audit of the directories themselves."""
        if record.audit is not None:
            return {}
        news: dict[str, object] = {}
        changed: Mapping[str, Collection[bytes]] = {}
        left_out = list(usage.refused)
        if usage.refused_count > len(left_out):
            left_out.append(f"and {usage.refused_count - len(left_out)} more")
        if usage.returned or record.returned:
            try:
                changes, conflicts, changed = await in_background(self._merge, record, usage)
            except SubletError as error:
                log.warning("what came back was not kept", delegation_id=record.id, reason=str(error))
                left_out.append(f"all of it: {error.message}")
            except Exception:
                log.exception("what came back was not merged", delegation_id=record.id)
                left_out.append("all of it: by an internal error; see the daemon's log")
            else:
                news["change_set"] = changes
                left_out += conflicts
        else:
            await self.drop()
        # The views were served, and not the directories that are looked at now.
        touched = _without(usage.touched, left_out)
        for name, paths in changed.items():
            touched.setdefault(name, set()).update(paths)
        seen = replace(usage, roots={}, touched=touched)
        return news | {"left_behind": left_out} | await audited(self._trees.auditor, record, self._live.resources, seen)

    def _merge(
        self, record: DelegationRecord, usage: LeaseUsage
    ) -> tuple[ChangeSetView, list[str], Mapping[str, Collection[bytes]]]:
        """Merge what came back; return what became of it, what was left out and why, and what was changed."""
        sealed = [
            self._seal(self._keys[lent.name], replace(lent, rules=with_own(lent.rules, usage.own.get(lent.name))))[0]
            for lent in self._live.resources
            if lent.name in self._keys
        ]
        store = ResultStore(self._trees.changes, Applier(self._trees.changes))
        if any(one.status != "pending" for one in sealed):  # merged already, before a crash
            return change_set_view(sealed), [], store.changed(record)
        whole = record.model_copy(update={"change_set": change_set_view(sealed)})
        try:
            report = store.apply(whole, ApplyResult(delegation_id=record.id, partial=True, allow_mass_deletion=True))
        except SubletError as error:
            # Nothing of it is lost: it waits as a staged result does.
            log.warning("what came back was not merged", delegation_id=record.id, reason=str(error))
            return change_set_view(sealed), [f"all of it: {error.message}; it waits for: sublet apply {record.id}"], {}
        told = listed(map(_told, report.conflicts), MAX_LEFT_BEHIND)
        return report.change_set, told, store.changed(record)


def _not_returned() -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE,
        "the changes did not come back whole, so none of them was kept",
        "Delegate again; the log of the executor's daemon says why.",
    )


def _without(touched: Mapping[str, set[bytes]], left_out: Collection[str]) -> dict[str, set[bytes]]:
    """Return what was changed in the views but for what is the delegator's own, made in no view."""
    names = {line.partition(": ")[0] for line in left_out}
    return {
        directory: {path for path in paths if names.isdisjoint((clean_name(path), f"{directory}/{clean_name(path)}"))}
        for directory, paths in touched.items()
    }


def comes_back(record: DelegationRecord) -> bool:
    """Tell whether what is written comes back at the end, and not through a mount at once."""
    request = record.request
    writes = request.access_mode == "rw" or any(lent.access_mode == "rw" for lent in request.resources)
    return writes and (record.transport or request.transport) in ("archive", "git")


def _told(conflict: Conflict) -> str:
    theirs = "" if conflict.theirs is None else f"; the executor's version: {conflict.theirs}"
    return f"{conflict.path}: {conflict.reason}{theirs}"


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
        counts=dict(Counter(file.change for file in files)),
        lines_added=changes.counts.lines_added,
        lines_deleted=changes.counts.lines_deleted,
        unaudited=changes.unread,
        directories=tuple(
            ChangedDirectory(one.path, one.change, "executor", one.before, one.after) for one in changes.directories
        ),
        directory_counts=dict(Counter(one.change for one in changes.directories)),
    )


def _files(change: ChangedPath) -> list[ChangedFile]:
    counts = (change.lines_added, change.lines_deleted)
    if change.change != "renamed":
        modes = (change.mode_before, change.mode_after)
        return [ChangedFile(change.path, change.change, "executor", *counts, *modes)]
    added = ChangedFile(change.path, "added", "executor", *counts, None, change.mode_after)
    return [added] if change.renamed_from is None else [added, ChangedFile(change.renamed_from, "deleted", "executor")]
