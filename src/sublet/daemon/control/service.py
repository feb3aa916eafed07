"""``DaemonApi``: one method per operation, and before each the question to policy (AWCP 6.6, DESIGN 2)."""

from __future__ import annotations

from sublet.daemon.api.daemon_models import Check, ReloadReport, StatusView
from sublet.daemon.control.peer_service import PeerService
from sublet.daemon.operations.asking import operations
from sublet.policy.model import Action, Subject


@operations
class DaemonService(PeerService):
    """Implements ``DaemonApi``; what concerns the daemon itself is here."""

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
