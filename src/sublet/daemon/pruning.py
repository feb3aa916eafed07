"""Removes what ended delegations left behind (AWCP 6.6 ``prune_resources``)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sublet.daemon.journal import Journal
from sublet.daemon.models import PruneReport
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit import Auditor
from sublet.workspace.locks import DirectoryLocks


class Pruning:
    """Forgets settled delegations and assignments, their events and the shadow repositories nobody needs any more.

    What is under way is never touched.
    """

    def __init__(self, journal: Journal, auditor: Auditor, locks: DirectoryLocks) -> None:
        self._journal = journal
        self._auditor = auditor
        self._locks = locks

    async def run(self) -> PruneReport:
        """Prune everything that is over and report what went."""
        delegations = assignments = events = 0
        workspaces: set[str] = set()
        while batch := await self._journal.list_settled(settled=True):
            events += await self._journal.forget(delegations=[record.id for record in batch])
            delegations += len(batch)
            workspaces |= {record.workspace for record in batch}
        while ended := await self._journal.list_ended_assignments():
            events += await self._journal.forget(assignments=[record.id for record in ended])
            assignments += len(ended)
        shadows = 0
        for workspace in sorted(workspaces):
            shadows += await self._forget(Path(workspace))
        return PruneReport(delegations=delegations, assignments=assignments, events=events, shadows=shadows)

    async def _forget(self, workspace: Path) -> bool:
        """Remove the snapshots of a workspace, unless a lease of it still needs them; its own pruning does it then."""
        try:
            async with self._locks.acquire(workspace, "rw", owner="prune", timeout=0):
                await asyncio.to_thread(self._auditor.forget, workspace)
        except SubletError as error:
            if error.code is not LocalCode.CONFLICT:
                raise
            if any(holder.path == workspace for holder in self._locks.holders()):
                return False
            # Only a directory above or below is lent, and that one's snapshots are its own.
            await asyncio.to_thread(self._auditor.forget, workspace)
        return True
