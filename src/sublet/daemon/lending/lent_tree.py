"""The directories of one delegation: what of them is served, and what is told once access is cut (DESIGN 4.8)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import structlog

from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.reports import with_accounts
from sublet.daemon.lending.audits import audited
from sublet.daemon.storage.records import DelegationRecord
from sublet.daemon.tasks.background import in_background
from sublet.disk.removal import remove_tree
from sublet.protocol.bounds import GitMode
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.audit.comparing import ChangedFile, changes
from sublet.workspace.audit.manifest import Manifest
from sublet.workspace.audit.reporting import author_of
from sublet.workspace.confined.left_drafts import remove_drafts
from sublet.workspace.export import LeaseUsage, LentDirectory
from sublet.workspace.kept import log as kept_log
from sublet.workspace.kept.account import Account, settle

log = structlog.get_logger(__name__)


class LentTree(Protocol):
    """What a lease serves, whichever way its result comes back."""

    @property
    def resources(self) -> tuple[LentDirectory, ...]:
        """The directories that are served; known once there is a baseline."""

    async def baseline(self) -> dict[str, str]:
        """Record what the executor will see, and return the snapshots' ids by the names of the directories.

        Raises:
            SubletError: as ``Auditor.baseline``.
        """

    async def take_up(self) -> None:
        """Find again what an earlier process has begun to serve; instead of ``baseline``.

        Raises:
            SubletError: it is not there any more.
        """

    async def check(self) -> None:
        """Make sure that ``resources`` are still the directories for which policy was asked.

        Raises:
            SubletError: ``WORKSPACE_INVALID``.
        """

    async def report(self, record: DelegationRecord, usage: LeaseUsage) -> dict[str, object]:
        """Return what the record gains once access is cut. Nothing is raised.

        Args:
            record: has the snapshots, and nothing that was reported before.
            usage: what the lease did, as the data plane counted.
        """

    async def drop(self) -> None:
        """Give up what ``baseline`` has made, where nobody was ever given access. Nothing is raised."""


class LiveTree:
    """The directories themselves: what the executor writes is there at once, and the audit says what that was."""

    def __init__(
        self,
        resources: tuple[LentDirectory, ...],
        auditor: Auditor,
        git: GitMode,
        kept: Mapping[str, Path] | None = None,
    ) -> None:
        self.resources = resources
        self._auditor = auditor
        self._git = git
        self._kept = dict(kept or {})

    async def baseline(self) -> dict[str, str]:
        """``LentTree.baseline``."""
        snapshots, self.resources = await in_background(self._baseline)
        return snapshots

    def _baseline(self) -> tuple[dict[str, str], tuple[LentDirectory, ...]]:
        snapshots = {}
        for lent in self.resources:
            kept = self._kept.get(lent.name) if lent.access_mode == "rw" else None
            snapshots[lent.name] = self._snapshot(lent, kept)
            if self._git == "rw" and lent.access_mode == "rw":
                self._auditor.watch_refs(lent.path, snapshots[lent.name])
        return snapshots, self._with_kept()

    def _snapshot(self, lent: LentDirectory, kept: Path | None) -> str:
        """Snapshot one directory, and begin to keep what will be overwritten in it."""
        begin_ns, manifests = time.time_ns(), list[Manifest]()
        snapshot = self._auditor.baseline(lent.path, lent.rules, manifests.append)
        if kept is not None:
            stamps = (record.stamp for record in manifests[0].values())
            try:
                kept_log.begin(kept, begin_ns, {stamp.inode for stamp in stamps if stamp is not None})
            except OSError as exc:
                raise SubletError(
                    LocalCode.UNAVAILABLE,
                    f"nothing can be kept of what the lease may overwrite: {exc.strerror}",
                    "Look at the state directory: sublet doctor",
                ) from None
        return snapshot

    async def take_up(self) -> None:
        """``LentTree.take_up``: the directories are where they were, and so is what is kept of them."""
        self.resources = await in_background(self._with_kept)

    def _with_kept(self) -> tuple[LentDirectory, ...]:
        return tuple(
            replace(lent, kept=_opened(kept))
            if lent.access_mode == "rw" and (kept := self._kept.get(lent.name)) is not None and kept.is_dir()
            else lent
            for lent in self.resources
        )

    async def check(self) -> None:
        """``LentTree.check``: refuse a directory in whose place, or above which, a link was put meanwhile."""
        for lent in self.resources:
            real = await in_background(os.path.realpath, lent.path)
            if real != str(lent.path):
                raise SubletError(
                    ErrorCode.WORKSPACE_INVALID,
                    f"the directory {lent.name!r} was replaced by a link while the delegation was prepared",
                    "Delegate the directory itself.",
                )

    async def report(self, record: DelegationRecord, usage: LeaseUsage) -> dict[str, object]:
        """``LentTree.report``: the audit, unless there is one; locks of the executor's git are removed before."""
        if record.audit is not None:
            return {}
        left = await in_background(self._without_drafts, usage) if self._git == "rw" else {}
        news = await audited(self._auditor, record, self.resources, usage)
        return news | left | await in_background(self._accounts, record, usage, news)

    async def drop(self) -> None:
        """``LentTree.drop``: nothing was overwritten."""
        await in_background(self._forget, tuple(self._kept.values()))

    def _without_drafts(self, usage: LeaseUsage) -> dict[str, object]:
        """Remove what the executor's git had begun in a repository, and name what stays of it."""
        told: list[str] = []
        for lent in self.resources:
            own = usage.own.get(lent.name)
            if own is not None and lent.access_mode == "rw":
                prefix = f"{lent.name}/" if len(self.resources) > 1 else ""
                told += [prefix + line for line in remove_drafts(lent.path, own)]
        return {"left_behind": told} if told else {}

    def _accounts(self, record: DelegationRecord, usage: LeaseUsage, news: Mapping[str, object]) -> dict[str, object]:
        """Return the report with what was overwritten of others, and note what taking back needs to know."""
        report, results = news.get("audit"), news.get("result_snapshots")
        if not isinstance(report, AuditReport) or not isinstance(results, dict):
            return {}
        accounts: dict[str, Account] = {}
        for lent in self.resources:
            kept = self._kept.get(lent.name)
            if kept is None or lent.name not in results or not kept.is_dir():
                continue
            touched = usage.touched.get(lent.name, set())
            if not touched and not usage.touched_overflow:
                self._forget([kept])
                continue
            try:
                snapshot = record.snapshots[lent.name]
                differing = self._auditor.differing(lent.path, snapshot, results[lent.name])
                found = changes(*differing, author_of(touched, usage.touched_overflow))
                changed = (one.path for one in found if isinstance(one, ChangedFile) and one.by == "executor")
                before = self._auditor.manifest(lent.path, snapshot)
                accounts[lent.name] = settle(kept, lent.path, touched, usage.touched_overflow, before, changed)
            except (SubletError, OSError) as error:
                log.warning("what was overwritten can't be told", delegation_id=record.id, reason=str(error))
        return {"audit": with_accounts(report, accounts, several=len(self.resources) > 1)}

    @staticmethod
    def _forget(places: Iterable[Path]) -> None:
        for kept in places:
            with suppress(OSError):
                remove_tree(kept)
                kept.parent.rmdir()


def _opened(kept: Path) -> kept_log.KeptPlace:
    try:
        return kept_log.open_place(kept)
    except OSError as exc:
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"where the lease keeps what it overwrites can't be read: {exc.strerror}",
            "Look at the state directory: sublet doctor",
        ) from None
