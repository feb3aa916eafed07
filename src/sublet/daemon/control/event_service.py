"""Serves the operations of ``api.events``: what has happened, read page by page or followed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.events import FOLLOW_EVENTS, READ_EVENTS, EventPage, FollowEvents, ReadEvents
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.daemon.storage.event_log import EventLog
from sublet.policy.decision import Action, Resource, Subject
from sublet.protocol.events import Event

HEARTBEAT_SECONDS: Final = 15.0
"""How long a feed is silent at most."""


class EventService:
    """Tells the events of the journal to whoever may read what they are about.

    Args:
        gate: asks policy.
        events: holds them.
    """

    def __init__(self, gate: Gatekeeper, events: EventLog) -> None:
        self._gate = gate
        self._events = events

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
        return await self._events.wait_for_events(
            request.cursor, timeout=request.timeout, limit=request.limit, only=request.only(sessions=sessions)
        )

    @serves(FOLLOW_EVENTS)
    async def follow_events(self, request: FollowEvents, caller: Subject) -> AsyncGenerator[list[Event], None]:
        page_of = ReadEvents(**request.model_dump(), limit=MAX_PAGE)
        while True:
            page = await self.read_events(page_of, caller)
            yield page.events
            page_of = page_of.model_copy(update={"cursor": page.cursor, "timeout": HEARTBEAT_SECONDS})
