"""Removes what ended delegations left behind (AWCP 6.6 ``prune_resources``)."""

from __future__ import annotations

import asyncio

from sublet.daemon.journal import Journal
from sublet.daemon.models import PruneReport
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
        delegations = 0
        events = 0
        while batch := [r.id for r in await self._journal.list_settled(settled=True)]:
            events += await self._journal.forget(delegations=batch)
            delegations += len(batch)
        while ended := [r.id for r in await self._journal.list_ended_assignments()]:
            events += await self._journal.forget(assignments=ended)
        kept = {r.workspace for r in await self._journal.list_delegations()}
        views, freed = await asyncio.to_thread(self._auditor.forget_except, kept)
        return PruneReport(delegations=delegations, views=views, events=events, bytes_freed=freed)
