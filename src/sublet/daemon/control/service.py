"""``DaemonApi``: one method per operation, and before each the question to policy (AWCP 6.6, DESIGN 2)."""

from __future__ import annotations

import time

from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.daemon_models import PruneReport, PruneRequest
from sublet.daemon.api.models import AssignmentView
from sublet.daemon.control.delegation_service import DelegationService
from sublet.daemon.operations.asking import operations
from sublet.policy.model import Action, Subject


@operations
class DaemonService(DelegationService):
    """Implements ``DaemonApi``."""

    async def prune_resources(self, request: PruneRequest, caller: Subject) -> PruneReport:
        """``DaemonApi.prune_resources``."""
        await self._parts.gate.ask(caller, Action.RESOURCES_PRUNE, "*")
        return await self._parts.pruning.run(request)

    async def list_assignments(self, caller: Subject, *, limit: int = 50, active: bool = False) -> list[AssignmentView]:
        """``DaemonApi.list_assignments``."""
        await self._parts.gate.ask(caller, Action.ASSIGNMENT_READ, "*")
        now = time.time()
        found = await self._parts.journal.list_assignments(limit=min(limit, MAX_PAGE), active=active)
        return [record.view(now) for record in found]
