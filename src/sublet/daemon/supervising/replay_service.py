"""Serves the operation of ``api.replays``: reads what was recorded, and has it decided again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.replays import MAX_REPLAYED_EVENTS, REPLAY, ReplayRequest, ReplayStep, ReplayView
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.daemon.storage.journal import Journal
from sublet.policy.decision import Action, Subject
from sublet.policy.engine import Policy
from sublet.policy.rule_set import RuleSet
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventFilter
from sublet.protocol.text import clean_line
from sublet.supervisor.replay.basis import Basis, digests_of
from sublet.supervisor.replay.session import replay
from sublet.supervisor.replay.steps import Step

MAX_REPLAYS = 2
"""At one time: each holds a session's events and documents in memory."""


class ReplayService:
    """Replays sessions, at most ``MAX_REPLAYS`` at one time.

    Args:
        gate: asks policy.
        journal: has the events.
        policy: the rules that hold now.
    """

    def __init__(self, gate: Gatekeeper, journal: Journal, policy: Policy) -> None:
        self._gate = gate
        self._journal = journal
        self._policy = policy
        self._running = 0

    @serves(REPLAY)
    async def replay_session(self, request: ReplayRequest, caller: Subject) -> ReplayView:
        """Decide again what was decided in a session, and compare.

        Raises:
            SubletError: ``NOT_FOUND`` where nothing is recorded of it; ``INVALID_ARGUMENT`` for more than
                ``MAX_REPLAYED_EVENTS``; ``UNAVAILABLE``.
        """
        if request.current:
            await self._gate.ask(caller, Action.POLICY_READ, "*")
        if self._running >= MAX_REPLAYS:
            raise SubletError(LocalCode.UNAVAILABLE, f"{MAX_REPLAYS} replays are under way", "Try again in a moment.")
        self._running += 1
        try:
            events = await self._events(request.session_id)
            documents = await self._journal.events.documents(digests_of(events))
            current = self._policy.rule_set if request.current else None
            steps = await asyncio.to_thread(_replayed, events, documents, current)
        finally:
            self._running -= 1
        return ReplayView(
            session=request.session_id,
            rules="current" if request.current else "recorded",
            events=len(events),
            equal=all(one.result == "equal" for one in steps),
            steps=[ReplayStep.model_validate(one) for one in steps],
        )

    async def _events(self, session_id: str) -> list[Event]:
        found: list[Event] = []
        cursor = 0
        while True:
            page = await self._journal.events.events_after(
                cursor, limit=MAX_PAGE, only=EventFilter(session_id=session_id)
            )
            if not page.events:
                break
            found += page.events
            cursor = page.cursor
            if len(found) > MAX_REPLAYED_EVENTS:
                raise SubletError(
                    LocalCode.INVALID_ARGUMENT, f"the session has more than {MAX_REPLAYED_EVENTS} events", "See events."
                )
        if not found:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"nothing is recorded of a session {clean_line(session_id, 60)}",
                "See: sublet sessions list",
            )
        return found


def _replayed(events: Sequence[Event], documents: dict[str, JsonValue], current: RuleSet | None) -> tuple[Step, ...]:
    return replay(events, Basis(documents, current))
