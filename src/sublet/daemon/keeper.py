"""Keeps one delegation's record: every change is journalled before anybody acts on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sublet.daemon.journal import Journal
from sublet.daemon.models import ConditionView, ErrorView
from sublet.daemon.records import DelegationRecord
from sublet.daemon.times import rfc3339
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKind
from sublet.protocol.lifecycle import DELEGATION_TABLE, DelegationEvent, advance, allows


class DelegationOver(Exception):
    """The delegation ended, by a cancel or the end of its lease, before the step that was about to be taken."""


class DelegationKeeper:
    """The one writer of a delegation's record.

    Two ends may race, such as DONE and a cancel: the first to be journalled wins and the other changes nothing.
    """

    def __init__(self, record: DelegationRecord, journal: Journal) -> None:
        self.record = record
        self._journal = journal
        self._writing = asyncio.Lock()

    async def advance(self, event: DelegationEvent, **changes: object) -> None:
        """Journal the transition that ``event`` makes, and ``changes`` with it.

        Raises:
            DelegationOver: it has ended already.
            IllegalTransition: the table forbids it in this state.
        """
        if not await self.end(event, **changes):
            raise DelegationOver

    async def end(self, event: DelegationEvent, **changes: object) -> bool:
        """Journal a transition unless the delegation is over; tell whether it was made.

        Raises:
            IllegalTransition: the table forbids it in this state.
        """
        async with self._writing:
            if self.record.terminal:
                return False
            state = advance(DELEGATION_TABLE, self.record.state, event)
            data: dict[str, JsonValue] = {"state": str(state)}
            if isinstance(error := changes.get("error"), ErrorView):
                data |= {"code": error.code, "message": error.message}
            await self._save({**changes, "state": state}, EventKind.DELEGATION_STATE, data)
            return True

    async def note(self, **changes: object) -> None:
        """Journal facts that are no transition; what does not change anything is not written."""
        async with self._writing:
            news = {key: value for key, value in changes.items() if getattr(self.record, key) != value}
            if not news:
                return
            kind, data = _event_of(news)
            await self._save(news, kind, data)

    def allows(self, event: DelegationEvent) -> bool:
        """Tell whether ``event`` may happen now."""
        return allows(DELEGATION_TABLE, self.record.state, event)

    async def _save(self, changes: Mapping[str, object], kind: EventKind | None, data: dict[str, JsonValue]) -> None:
        record = self.record.model_copy(update={**changes, "updated_at": rfc3339()})
        await self._journal.save_delegation(record, kind, data)
        self.record = record


def _event_of(news: Mapping[str, object]) -> tuple[EventKind | None, dict[str, JsonValue]]:
    if "audit" in news:
        return EventKind.DELEGATION_AUDIT, {}
    if "condition" in news:
        condition = news["condition"]
        shown = condition.model_dump() if isinstance(condition, ConditionView) else None
        return EventKind.DELEGATION_CONDITION, {"condition": shown}
    return None, {}
