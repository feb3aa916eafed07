"""The directory of one delegation: what of it is served, and what is told of it once access is cut (DESIGN 4.8)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from sublet.daemon.audits import audited
from sublet.daemon.background import in_background
from sublet.daemon.records import DelegationRecord
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.audit import Auditor
from sublet.workspace.model import LeaseUsage
from sublet.workspace.rules import Rules


class LentTree(Protocol):
    """What a lease serves, whichever way its result comes back."""

    @property
    def root(self) -> Path:
        """The directory that is served; known once there is a baseline."""

    async def baseline(self) -> str:
        """Record what the executor will see, and return the snapshot's id.

        Raises:
            SubletError: as ``Auditor.baseline``.
        """

    async def check(self) -> None:
        """Make sure that ``root`` is still the directory for which policy was asked.

        Raises:
            SubletError: ``WORKSPACE_INVALID``.
        """

    async def report(self, record: DelegationRecord, usage: LeaseUsage) -> dict[str, object]:
        """Return what the record gains once access is cut. Nothing is raised.

        Args:
            record: has the snapshot, and nothing that was reported before.
            usage: what the lease did, as the data plane counted.
        """


class LiveTree:
    """The directory itself: what the executor writes is there at once, and the audit says what that was."""

    def __init__(self, root: Path, rules: Rules, auditor: Auditor) -> None:
        self.root = root
        self._rules = rules
        self._auditor = auditor

    async def baseline(self) -> str:
        """``LentTree.baseline``."""
        return await in_background(self._auditor.baseline, self.root, self._rules)

    async def check(self) -> None:
        """``LentTree.check``: refuse a directory in whose place, or above which, a link was put meanwhile."""
        real = await in_background(os.path.realpath, self.root)
        if real != str(self.root):
            raise SubletError(
                ErrorCode.WORKSPACE_INVALID,
                "the directory was replaced by a link while the delegation was prepared",
                "Delegate the directory itself.",
            )

    async def report(self, record: DelegationRecord, usage: LeaseUsage) -> dict[str, object]:
        """``LentTree.report``: the audit, unless there is one."""
        if record.audit is not None:
            return {}
        return await audited(
            self._auditor, record, self._rules, usage.touched, overflow=usage.touched_overflow, served=usage.root
        )
