"""Keeps one delegation's record: every change is journalled before anybody acts on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

import anyio

from sublet.daemon.api.delegation_views import ConditionView, ErrorView, ResultView
from sublet.daemon.storage.journal import NOTHING, Held, Journal
from sublet.daemon.storage.records import PROGRESS, DelegationRecord, FollowUpRecord, error_view, lease_over
from sublet.daemon.times import rfc3339, unix_seconds
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKind
from sublet.protocol.lifecycle import DELEGATION_TABLE, DelegationEvent, advance, is_terminal


class DelegationOver(Exception):
    """The delegation ended, by a cancel or the end of its lease, before the step that was about to be taken."""


class DelegationKeeper:
    """The one writer of a delegation's record.

    Ends may race, such as DONE, a cancel and the end of the lease: the first to be journalled wins and the others
    change nothing. What a reader was told of a lease that is over (``DelegationRecord.overdue``) stays true: from then
    on every transition becomes EXPIRE.

    Args:
        record: as it is journalled, or about to be by ``begin``.
        journal: where it is written.
        clock: Unix seconds.
    """

    def __init__(self, record: DelegationRecord, journal: Journal, clock: Callable[[], float] = time.time) -> None:
        self.record = record
        self._journal = journal
        self._clock = clock
        self._writing = asyncio.Lock()

    @property
    def over(self) -> bool:
        """Whether nothing can change the end any more: it is journalled, or the peer's DONE is."""
        return self.record.terminal or self.record.result is not None

    async def begin(self) -> None:
        """Journal the record for the first time.

        Raises:
            SubletError: ``CONFLICT`` where the caller's idempotency key belongs to another delegation.
        """
        async with self._writing:
            await self._write(self.record, EventKind.DELEGATION_STATE, {"state": str(self.record.state)})

    async def advance(self, event: DelegationEvent, held: Held = NOTHING, **changes: object) -> None:
        """Journal the transition that ``event`` makes, with ``changes`` and what is ``held``.

        Raises:
            DelegationOver: it has ended already.
            IllegalTransition: the table forbids it in this state.
        """
        if not await self.end(event, held, **changes):
            raise DelegationOver

    async def end(self, event: DelegationEvent, held: Held = NOTHING, **changes: object) -> bool:
        """Journal a transition unless the delegation is over; tell whether it was made.

        Raises:
            IllegalTransition: the table forbids it in this state.
        """
        async with self._writing:
            if self.record.terminal or (self.record.result is not None and event is not DelegationEvent.DONE):
                return False
            if event is not DelegationEvent.EXPIRE and await self._lapse():
                return False
            await self._move(event, changes, held)
            return True

    async def conclude(self, result: ResultView, condition: ConditionView) -> None:
        """Journal what the peer said with DONE; from then on neither a cancel nor the end of the lease undoes it.

        Raises:
            DelegationOver: it has ended already.
        """
        async with self._writing:
            if self.over or await self._lapse():
                raise DelegationOver
            await self._save({"result": result, "condition": condition})

    async def extend(self, seconds: int) -> None:
        """Journal that the lease ends ``seconds`` later.

        Raises:
            DelegationOver: it has ended already.
        """
        async with self._writing:
            if self.over or await self._lapse():
                raise DelegationOver
            record = self.record
            assert record.expires_at is not None
            expires_at = rfc3339(unix_seconds(record.expires_at) + seconds)
            news = {
                "ttl_seconds": record.ttl_seconds + seconds,
                "expires_at": expires_at,
                "updated_at": rfc3339(),
            }
            data: dict[str, JsonValue] = {"seconds": seconds, "expires_at": expires_at}
            await self._write(record.model_copy(update=news), EventKind.DELEGATION_EXTENDED, data)

    async def follow_up(self, follow_up: FollowUpRecord) -> None:
        """Journal a further prompt, or what became of it; news that is behind what is known changes nothing.

        Raises:
            DelegationOver: it has ended already, and the prompt is a new one.
        """
        async with self._writing:
            said = {one.id: one for one in self.record.follow_ups}
            known = said.get(follow_up.id)
            if known is not None and PROGRESS[follow_up.state] <= PROGRESS[known.state]:
                return
            if follow_up.state == "pending" and (self.over or await self._lapse()):
                raise DelegationOver
            said[follow_up.id] = follow_up
            changed = self.record.model_copy(update={"follow_ups": tuple(said.values()), "updated_at": rfc3339()})
            shown = follow_up.view(over=False).model_dump()
            await self._write(changed, EventKind.DELEGATION_FOLLOW_UP, shown)

    async def note(self, held: Held = NOTHING, **changes: object) -> None:
        """Journal facts that are no transition; what does not change anything is not written."""
        async with self._writing:
            await self._save({key: value for key, value in changes.items() if getattr(self.record, key) != value}, held)

    async def _lapse(self) -> bool:
        """Journal the end of the lease where it is over by the clock, and tell whether it is."""
        if not self.record.overdue(self._clock()):
            return False
        await self._move(DelegationEvent.EXPIRE, {"error": error_view(lease_over(self.record.ttl_seconds))})
        return True

    async def _move(self, event: DelegationEvent, changes: Mapping[str, object], held: Held = NOTHING) -> None:
        state = advance(DELEGATION_TABLE, self.record.state, event)
        if is_terminal(DELEGATION_TABLE, state):
            # What was lent is still to be audited, and who reads the end has to be able to wait for that.
            to_audit = bool(self.record.snapshots) and event is not DelegationEvent.DONE
            ending = ConditionView(kind="ending", detail="access is cut; auditing") if to_audit else None
            changes = {"condition": ending, **changes}
        data: dict[str, JsonValue] = {"state": str(state)}
        if isinstance(error := changes.get("error"), ErrorView):
            data |= {"code": error.code, "message": error.message}
        changed = self.record.model_copy(update={**changes, "state": state, "updated_at": rfc3339()})
        await self._write(changed, EventKind.DELEGATION_STATE, data, held)

    async def _save(self, news: Mapping[str, object], held: Held = NOTHING) -> None:
        if news or held:
            kind, data = _event_of(news)
            await self._write(self.record.model_copy(update={**news, "updated_at": rfc3339()}), kind, data, held)

    async def _write(
        self, record: DelegationRecord, kind: EventKind | None, data: dict[str, JsonValue], held: Held = NOTHING
    ) -> None:
        # Shielded, so that the record in memory and the one on the disk never part ways.
        with anyio.CancelScope(shield=True):
            await self._journal.save_delegation(record, kind, data, held)
            self.record = record


def _event_of(news: Mapping[str, object]) -> tuple[EventKind | None, dict[str, JsonValue]]:
    if isinstance(error := news.get("audit_error"), ErrorView):
        return EventKind.DELEGATION_AUDIT, {"code": error.code, "message": error.message}
    if "audit" in news:
        return EventKind.DELEGATION_AUDIT, {}
    if "condition" in news:
        condition = news["condition"]
        shown = condition.model_dump() if isinstance(condition, ConditionView) else None
        return EventKind.DELEGATION_CONDITION, {"condition": shown}
    return None, {}
