"""``DaemonApi``: one method per operation, and before each the question to policy (AWCP 6.6, DESIGN 2)."""

from __future__ import annotations

import time

from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.daemon_models import Check, PruneReport, PruneRequest, ReloadReport, StatusView
from sublet.daemon.api.models import AssignmentView
from sublet.daemon.control.delegation_service import DelegationService
from sublet.daemon.control.peer_service import PeerService
from sublet.daemon.operations.asking import operations
from sublet.policy.model import Action, Subject


@operations
class DaemonService(DelegationService, PeerService):
    """Implements ``DaemonApi``; what concerns the daemon itself is here."""

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

    async def status(self, caller: Subject) -> StatusView:
        """``DaemonApi.status``."""
        await self._parts.gate.ask(caller, Action.DAEMON_CONTROL, "status")
        return await self._parts.status()

    async def doctor(self, caller: Subject) -> list[Check]:
        """``DaemonApi.doctor``."""
        await self._parts.gate.ask(caller, Action.DAEMON_CONTROL, "doctor")
        return await self._parts.doctor()

    async def reload(self, caller: Subject) -> ReloadReport:
        """``DaemonApi.reload``."""
        await self._parts.gate.ask(caller, Action.DAEMON_CONTROL, "reload")
        return await self._parts.reload()

    async def shutdown(self, caller: Subject) -> None:
        """``DaemonApi.shutdown``."""
        await self._parts.gate.ask(caller, Action.DAEMON_CONTROL, "stop")
        self._parts.stop()
