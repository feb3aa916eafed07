"""Removes what ended delegations left behind (AWCP 6.6 ``prune_resources``)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sublet.daemon.journal import Journal
from sublet.daemon.models import PruneReport
from sublet.daemon.records import DelegationRecord
from sublet.workspace.audit import Auditor


class Pruning:
    """Forgets settled delegations and assignments, their events and the shadow repositories nobody needs any more.

    What is under way is never touched.
    """

    def __init__(self, journal: Journal, auditor: Auditor) -> None:
        self._journal = journal
        self._auditor = auditor

    async def run(self) -> PruneReport:
        """Prune everything that is over and report what went."""
        events = 0
        forgotten: list[DelegationRecord] = []
        while batch := await self._journal.list_settled(settled=True):
            events += await self._journal.forget(delegations=[record.id for record in batch])
            forgotten += batch
        assignments = 0
        while ended := await self._journal.list_ended_assignments():
            events += await self._journal.forget(assignments=[record.id for record in ended])
            assignments += len(ended)
        kept = {record.workspace for record in await self._journal.list_settled(settled=False)}
        shadows = {record.workspace for record in forgotten} - kept
        for workspace in shadows:
            await asyncio.to_thread(self._auditor.forget, Path(workspace))
        return PruneReport(delegations=len(forgotten), assignments=assignments, events=events, shadows=len(shadows))
