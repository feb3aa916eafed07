"""Serves the operation of ``api.pruning``."""

from __future__ import annotations

from sublet.daemon.api.pruning import PRUNE, PruneReport, PruneRequest
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.daemon.storage.pruning import Pruning
from sublet.policy.decision import Subject


class PruneService:
    """Removes what ended delegations left behind, as a person asks."""

    def __init__(self, gate: Gatekeeper, pruning: Pruning) -> None:
        self._gate = gate
        self._pruning = pruning

    @serves(PRUNE)
    async def prune(self, request: PruneRequest, caller: Subject) -> PruneReport:
        return await self._pruning.run(request)
