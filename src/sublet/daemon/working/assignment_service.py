"""Serves the operations of ``api.assignments``: work that is done here for paired daemons."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from sublet.daemon.api.assignments import CANCEL_ASSIGNMENT, GET_ASSIGNMENT, LIST_ASSIGNMENTS, AssignmentView
from sublet.daemon.api.delegation_fields import ListNewest, OneDelegation
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.daemon.storage.journal import Journal
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.text import clean_line


class AssignmentService:
    """Shows the work that this daemon does for peers, and ends it.

    Args:
        gate: asks policy.
        journal: holds the records.
        stop_work: ends the work of one delegation, as its owner here wants: ``Executor.stop_here``.
    """

    def __init__(self, gate: Gatekeeper, journal: Journal, stop_work: Callable[[str], Awaitable[None]]) -> None:
        self._gate = gate
        self._journal = journal
        self._stop_work = stop_work

    @serves(LIST_ASSIGNMENTS)
    async def list_assignments(self, request: ListNewest, caller: Subject) -> list[AssignmentView]:
        now = time.time()
        records = await self._journal.list_assignments(
            limit=request.limit, active=request.active, before=request.before
        )
        return [record.view(now) for record in records]

    @serves(GET_ASSIGNMENT)
    async def get_assignment(self, request: OneDelegation, caller: Subject) -> AssignmentView:
        return await self._view(request.delegation_id)

    @serves(CANCEL_ASSIGNMENT)
    async def cancel_assignment(self, request: OneDelegation, caller: Subject) -> AssignmentView:
        await self._view(request.delegation_id)
        await self._stop_work(request.delegation_id)
        return await self._view(request.delegation_id)

    async def _view(self, delegation_id: str) -> AssignmentView:
        record = await self._journal.load_assignment(delegation_id)
        if record is None:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"no work is done here under {clean_line(delegation_id, 80)}",
                "See: sublet work --all",
            )
        return record.view(time.time())
