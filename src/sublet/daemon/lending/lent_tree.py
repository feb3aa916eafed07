"""The directories of one delegation: what of them is served, and what is told once access is cut (DESIGN 4.8)."""

from __future__ import annotations

import os
from typing import Protocol

from sublet.daemon.background import in_background
from sublet.daemon.lending.audits import audited
from sublet.daemon.storage.records import DelegationRecord
from sublet.protocol.bounds import GitMode
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.model import LeaseUsage, LentDirectory


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

    def __init__(self, resources: tuple[LentDirectory, ...], auditor: Auditor, git: GitMode) -> None:
        self.resources = resources
        self._auditor = auditor
        self._git = git

    async def baseline(self) -> dict[str, str]:
        """``LentTree.baseline``."""
        snapshots = {}
        for lent in self.resources:
            snapshots[lent.name] = await in_background(self._auditor.baseline, lent.path, lent.rules)
            if self._git == "rw" and lent.access_mode == "rw":
                await in_background(self._auditor.watch_refs, lent.path, snapshots[lent.name])
        return snapshots

    async def take_up(self) -> None:
        """``LentTree.take_up``: the directories are where they were."""

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
        """``LentTree.report``: the audit, unless there is one."""
        if record.audit is not None:
            return {}
        return await audited(self._auditor, record, self.resources, usage)

    async def drop(self) -> None:
        """``LentTree.drop``: nothing was made."""
