"""Serves what has happened and what is kept of it: events, work done for peers, and forgetting what is over."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from sublet.daemon.api.assignments import CANCEL_ASSIGNMENT, GET_ASSIGNMENT, LIST_ASSIGNMENTS, AssignmentView
from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.delegation_fields import ListNewest, OneDelegation
from sublet.daemon.api.events import FOLLOW_EVENTS, READ_EVENTS, EventPage, FollowEvents, ReadEvents
from sublet.daemon.api.pruning import PRUNE, PruneReport, PruneRequest
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.pruning import Pruning
from sublet.policy.model import Action, Resource, Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event
from sublet.protocol.text import clean_line

HEARTBEAT_SECONDS: Final = 15.0
"""How long a feed is silent at most."""


class HistoryService:
    """What the journal tells.

    Args:
        gate: asks policy.
        journal: holds events and work done for peers.
        pruning: forgets.
        stop_work: ends work done for a peer, as its owner here wants.
    """

    def __init__(
        self, gate: Gatekeeper, journal: Journal, pruning: Pruning, stop_work: Callable[[str], Awaitable[None]]
    ) -> None:
        self._gate = gate
        self._journal = journal
        self._pruning = pruning
        self._stop_work = stop_work

    @serves(READ_EVENTS)
    async def read_events(self, request: ReadEvents, caller: Subject) -> EventPage:
        session_id, delegation_id = request.session_id, request.delegation_id
        if session_id is not None:
            await self._gate.ask(caller, Action.SESSION_READ, session_id)
        if session_id is None or delegation_id is not None:
            await self._gate.ask(caller, Action.DELEGATION_READ, delegation_id or "*")
        sessions = True
        if session_id is None and delegation_id is None:
            # Of all that happens, whoever may not read sessions gets the rest.
            sessions = self._gate.foresee(caller, Action.SESSION_READ, Resource("*")).decision.allowed
        return await self._journal.wait_for_events(
            request.cursor, timeout=request.timeout, limit=request.limit, only=request.only(sessions=sessions)
        )

    @serves(FOLLOW_EVENTS)
    async def follow_events(self, request: FollowEvents, caller: Subject) -> AsyncGenerator[list[Event], None]:
        page_of = ReadEvents(**request.model_dump(), limit=MAX_PAGE)
        while True:
            page = await self.read_events(page_of, caller)
            yield page.events
            page_of = page_of.model_copy(update={"cursor": page.cursor, "timeout": HEARTBEAT_SECONDS})

    @serves(LIST_ASSIGNMENTS)
    async def list_assignments(self, request: ListNewest, caller: Subject) -> list[AssignmentView]:
        now = time.time()
        found = await self._journal.list_assignments(limit=request.limit, active=request.active, before=request.before)
        return [record.view(now) for record in found]

    @serves(GET_ASSIGNMENT)
    async def get_assignment(self, request: OneDelegation, caller: Subject) -> AssignmentView:
        return await self._assignment(request.delegation_id)

    @serves(CANCEL_ASSIGNMENT)
    async def cancel_assignment(self, request: OneDelegation, caller: Subject) -> AssignmentView:
        await self._assignment(request.delegation_id)
        await self._stop_work(request.delegation_id)
        return await self._assignment(request.delegation_id)

    async def _assignment(self, delegation_id: str) -> AssignmentView:
        found = await self._journal.load_assignment(delegation_id)
        if found is None:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"no work is done here under {clean_line(delegation_id, 80)}",
                "See: sublet work --all",
            )
        return found.view(time.time())

    @serves(PRUNE)
    async def prune(self, request: PruneRequest, caller: Subject) -> PruneReport:
        return await self._pruning.run(request)
