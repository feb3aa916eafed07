"""Drives the core of one delegation, and keeps its record: every change is journalled before anybody acts on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import anyio

from sublet.daemon.api.delegation_views import ConditionView, ErrorView
from sublet.daemon.lending.core_state import changes_of, delegation_of
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord, FollowUpRecord
from sublet.daemon.storage.resource_log import NOTHING, ResourceChange
from sublet.daemon.times import rfc3339
from sublet.protocol.canonical import JsonValue
from sublet.protocol.delegation import core, phases
from sublet.protocol.delegation.events import Created, Event, Undone
from sublet.protocol.delegation.outputs import Output, Record
from sublet.protocol.delegation.phases import Phase
from sublet.protocol.delegation.state import Delegation
from sublet.protocol.errors import SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.lifecycle import DELEGATION_TABLE, DelegationState, is_terminal
from sublet.protocol.times import Now

Fits = Callable[[Record], bool]
NO_FACTS: Final[Mapping[str, object]] = MappingProxyType({})


def leads_to(state: DelegationState) -> Fits:
    """Return what tells records of the transition to ``state`` from others."""
    return lambda record: record.now.state is state


class DelegationKeeper:
    """The one writer of a delegation's record: one event at a time, and what it leads to in order.

    Args:
        record: as it is journalled, or about to be by ``Created``.
        journal: where it is written.
        clock: Unix seconds.
        perform: does an output at once, or remembers it for whoever does it; nothing is awaited between the journal
            and this. It raises ``SubletError`` where it can't be done.
        changed: told of each state, once all of its outputs are done.
    """

    def __init__(
        self,
        record: DelegationRecord,
        journal: Journal,
        clock: Callable[[], float] = time.time,
        *,
        perform: Callable[[Output], None] = lambda _: None,
        changed: Callable[[Delegation], None] = lambda _: None,
    ) -> None:
        self.record = record
        self.state = delegation_of(record)
        self._journal = journal
        self._clock = clock
        self._perform = perform
        self._changed = changed
        self._writing = asyncio.Lock()

    @property
    def over(self) -> bool:
        """Whether nothing can change the end any more: it is journalled, or the peer's DONE is, or neither can be."""
        return phases.phase_of(self.state) in (Phase.ENDING, Phase.SETTLED, Phase.LEFT)

    @property
    def overdue(self) -> bool:
        """Whether its time is over, though nobody has said so yet."""
        return phases.overdue(self.state, self._now())

    def _now(self) -> Now:
        return Now(self._clock(), anyio.current_time())

    async def feed(
        self,
        event: Event,
        facts: Mapping[str, object] = NO_FACTS,
        *,
        fits: Fits = lambda _: True,
        held: ResourceChange = NOTHING,
    ) -> tuple[Output, ...]:
        """Take what has happened, journal and do what follows from it, and return what was to be done.

        It is done whole even where the caller gives up.

        Args:
            event: what has happened.
            facts: what else the record says to which the event is meant to lead.
            fits: tells whether a record is that one.
            held: what is journalled in its transaction.
        """
        with anyio.CancelScope(shield=True):
            async with self._writing:
                outputs = await self._step(event, facts, fits, held)
                self._changed(self.state)
        return outputs

    async def note(self, held: ResourceChange = NOTHING, **facts: object) -> None:
        """Journal facts that are no transition; what does not change anything is not written."""
        with anyio.CancelScope(shield=True):
            async with self._writing:
                news = {key: value for key, value in facts.items() if getattr(self.record, key) != value}
                if news or held:
                    kind, data = _event_of(news)
                    await self._write(
                        self.record.model_copy(update={**news, "updated_at": rfc3339()}), kind, data, held
                    )

    async def _step(
        self, event: Event, facts: Mapping[str, object], fits: Fits, held: ResourceChange
    ) -> tuple[Output, ...]:
        durable = self.state
        after, outputs = core.step(self.state, event, self._now())
        done: list[Output] = []
        fitting = [output for output in outputs if isinstance(output, Record) and fits(output)]
        meant = fitting[-1] if fitting else None
        for output in outputs:
            try:
                if isinstance(output, Record):
                    more, taken = (facts, held) if output is meant else (NO_FACTS, NOTHING)
                    await self._record(output, taken, more, first=isinstance(event, Created))
                    durable = self.state = output.now
                else:
                    self._perform(output)
                    done.append(output)
            except SubletError as error:
                self.state = durable
                return (*done, *await self._step(Undone(output, error), NO_FACTS, lambda _: False, NOTHING))
        self.state = after
        return tuple(done)

    async def _record(self, output: Record, held: ResourceChange, facts: Mapping[str, object], *, first: bool) -> None:
        state = output.now.state
        changes = {**changes_of(output, self.record), **facts}
        data: dict[str, JsonValue] = {}
        if first or state is not self.record.state:
            kind: EventKind | None = EventKind.DELEGATION_STATE
            data = {"state": str(state)}
            if isinstance(error := changes.get("error"), ErrorView):
                data |= {"code": error.code, "message": error.message}
            if is_terminal(DELEGATION_TABLE, state) and "condition" not in facts:
                # What was lent is still to be audited, and who reads the end has to be able to wait for that.
                to_audit = bool(self.record.snapshots) and state is not DelegationState.COMPLETED
                changes["condition"] = (
                    ConditionView(kind="ending", detail="access is cut; auditing") if to_audit else None
                )
        elif output.extended:
            kind = EventKind.DELEGATION_EXTENDED
            data = {"seconds": output.extended, "expires_at": output.now.expires_at}
        elif output.said is not None:
            kind = EventKind.DELEGATION_FOLLOW_UP
            said = next(one for one in _follow_ups(changes) if one.id == output.said.id)
            data = said.view(over=False).model_dump()
        else:
            kind, data = _event_of(facts)
        changed = self.record if first else self.record.model_copy(update={**changes, "updated_at": rfc3339()})
        await self._write(changed, kind, data, held)

    async def _write(
        self, record: DelegationRecord, kind: EventKind | None, data: dict[str, JsonValue], held: ResourceChange
    ) -> None:
        await self._journal.save_delegation(record, kind, data, held)
        self.record = record


def _follow_ups(changes: Mapping[str, object]) -> list[FollowUpRecord]:
    follow_ups = changes["follow_ups"]
    assert isinstance(follow_ups, tuple)
    return list(follow_ups)


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
