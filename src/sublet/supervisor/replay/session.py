"""A session's log of events, decided again step by step. Without any I/O: whoever replays hands in what was kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from sublet.policy.recorded import DECIDED
from sublet.protocol.events import Event, EventKind
from sublet.supervisor.replay.answers import check_again, end_again, recorded_check, recorded_end
from sublet.supervisor.replay.basis import Basis
from sublet.supervisor.replay.decisions import chain_again, decision_again, recorded_decision
from sublet.supervisor.replay.log import Entry, Log, in_order
from sublet.supervisor.replay.routes import recorded_route, route_again
from sublet.supervisor.replay.steps import Facts, Step

NOT_KNOWN: Final = "not known here, left out"
TWICE: Final = "two different events have this number"
NO_END: Final = "nothing says how it ended"


def replay(events: Iterable[Event], basis: Basis) -> tuple[Step, ...]:
    """Return a step for each decision among ``events`` in the order in which they happened; other kinds have none.

    Args:
        events: of one session, in any order, however often each is there.
        basis: what they were decided from, and by which rules to decide.
    """
    log = in_order(events)
    steps: dict[int, Step] = {}
    for entry in log:
        step = _step(entry, log, steps, basis)
        if step is not None:
            told = replace(step, out_of_order=entry.out_of_order, copies=entry.copies, missing=entry.missing)
            steps[entry.event.seq] = told
    return tuple(steps.values())


def _step(entry: Entry, log: Log, steps: dict[int, Step], basis: Basis) -> Step | None:
    event = entry.event
    if not isinstance(event.kind, EventKind):
        return Step(event.seq, event.kind, "unknown", NOT_KNOWN)
    judge = _JUDGES.get(event.kind)
    if judge is None:
        return None
    found = judge(event, log, steps, basis)
    if found is not None and entry.contradicted:
        return _compared(event, found.recorded or {}, TWICE)
    return found


def _route(event: Event, log: Log, steps: dict[int, Step], basis: Basis) -> Step:
    return _compared(event, recorded_route(event), route_again(event, basis))


def _decision(event: Event, log: Log, steps: dict[int, Step], basis: Basis) -> Step | None:
    if event.data.get("layer") == "chain":
        return _compared(event, {"code": event.data.get("code")}, chain_again(event))
    step = _compared(event, recorded_decision(event), decision_again(event, basis))
    ended = event.kind is not EventKind.DISPATCH_SENT or any(
        one.kind is EventKind.DISPATCH_RESULT for one in log.after(event.seq)
    )
    return step if ended else replace(step, note=step.note or NO_END)


def _sent(event: Event, log: Log, steps: dict[int, Step], basis: Basis) -> Step | None:
    # What has no decision of its own follows from one that was told before.
    return _decision(event, log, steps, basis) if DECIDED in event.data else None


def _check(event: Event, log: Log, steps: dict[int, Step], basis: Basis) -> Step:
    step = _compared(event, recorded_check(event), check_again(event, basis))
    attempt = event.data.get("attempt")
    before = [one for one in log.after(event.keys.causation_id) if one.kind is event.kind and one.seq < event.seq]
    if isinstance(attempt, int) and attempt - 1 != len(before):
        return replace(step, note=step.note or f"of {attempt - 1} attempts before, {len(before)} are there")
    return step


def _end(event: Event, log: Log, steps: dict[int, Step], basis: Basis) -> Step | None:
    again, note = end_again(event, log, steps, basis)
    recorded = recorded_end(event)
    if recorded is None:
        return None if isinstance(again, str) else _compared(event, {"code": None}, again)
    step = _compared(event, recorded, again)
    return replace(step, note=step.note or note)


def _compared(event: Event, recorded: Facts, again: Facts | str) -> Step:
    if isinstance(again, str):
        return Step(event.seq, str(event.kind), "not_replayable", again, recorded)
    return Step(event.seq, str(event.kind), "equal" if again == recorded else "different", "", recorded, again)


_JUDGES: Final[dict[EventKind, Callable[[Event, Log, dict[int, Step], Basis], Step | None]]] = {
    EventKind.ROUTE_DECIDED: _route,
    EventKind.POLICY_REJECTED: _decision,
    EventKind.TOOL_CALL: _decision,
    EventKind.APPROVAL_REQUIRED: _decision,
    EventKind.DISPATCH_SENT: _sent,
    EventKind.GUARDRAIL_FAILED: _check,
    EventKind.DISPATCH_RESULT: _end,
}
