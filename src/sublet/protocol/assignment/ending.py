"""The end of an assignment: stop, wind-down, the end of the lease, the agent's own end, and what a kill left (AWCP 4).

Rules: the first reason to stop is the one that is told; slot and place are given back by one ``Free``; a DONE that is
not durable is not said.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sublet.protocol.assignment import phases, refusals
from sublet.protocol.assignment.events import (
    CallerLeft,
    Restarted,
    StopCame,
    TimePassed,
    Undone,
    WindDownCame,
    WorkEnded,
)
from sublet.protocol.assignment.outputs import Free, Interrupt, Output, Record, Refuse, Step, Tell, WindDown
from sublet.protocol.assignment.state import Assignment, State
from sublet.protocol.assignment.verdict import why_not_done
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import ASSIGNMENT_TABLE, AssignmentEvent, AssignmentState, advance, is_terminal
from sublet.protocol.messages import Done, DoneExtension
from sublet.protocol.times import Now

LEASE_END_SLACK_SECONDS: Final = 0.5
"""What ends this close to the end of the lease, unfinished, was ended by the lease."""


def give_up(state: Assignment, event: StopCame | WindDownCame, now: Now) -> Step:
    """End what waits for START, for the delegator or for this side."""
    if event.owner not in (None, state.owner):
        return state, (Refuse(refusals.unknown()),)
    return ended(state, event.error)


def caller_left(state: Assignment, event: CallerLeft, now: Now) -> Step:
    """End what waits for START: who invited has not heard ACCEPT."""
    return ended(state, event.error)


def never_started(state: Assignment, event: TimePassed, now: Now) -> Step:
    """End what has waited for START for as long as that is held."""
    if now.steady < state.waits_until:
        return state, ()
    return ended(state, refusals.no_start(state.waits_seconds))


def stop(state: Assignment, event: StopCame, now: Now) -> Step:
    """Tell the agent to end now. The first reason that was given is the one that is told."""
    if event.owner not in (None, state.owner):
        return state, (Refuse(refusals.unknown()),)
    return replace(state, stopped=state.stopped or event.error, interrupted=True), (Interrupt(),)


def wind_down(state: Assignment, event: WindDownCame, now: Now) -> Step:
    """Give the agent some seconds to see why it is ended; what ends already goes on ending."""
    if event.owner not in (None, state.owner):
        return state, (Refuse(refusals.unknown()),)
    if state.failed is not None or state.stopped is not None:
        return state, ()
    at = min(state.deadline, now.steady + event.seconds)
    wound = replace(state, failed=event.error, winds_down_at=at, prompts=state.prompts.close())
    return wound, (WindDown(event.error, at),)


def time_over(state: Assignment, event: TimePassed, now: Now) -> Step:
    """Tell the agent to end now, as the lease or its last seconds are over."""
    if now.steady < phases.wake_at(state):
        return state, ()
    return replace(state, interrupted=True), (Interrupt(),)


def work_ended(state: Assignment, event: WorkEnded, now: Now) -> Step:
    """Tell the delegator how the work ended, once that is durable, and give slot and place back."""
    ended = event.ended
    if event.failure is not None:
        error: SubletError | None = state.stopped or state.failed or event.failure
    else:
        error = why_not_done(
            state.id,
            ended,
            state.prompts.told,
            late=now.steady >= state.deadline - LEASE_END_SLACK_SECONDS,
            began=state.launched,
            # Work whose last writes did not all arrive is not done (DESIGN 4.1).
            missing=not event.flushed and state.access_mode == "rw",
            lost=event.lost,
            stopped=state.stopped,
            failed=state.failed,
            left=event.left,
        )
    over = replace(
        state,
        state=advance(ASSIGNMENT_TABLE, state.state, AssignmentEvent.FAIL if error else AssignmentEvent.DONE),
        prompts=state.prompts.close(),
        holds=False,
    )
    record = Record(
        over, error=error, reason=ended.reason if ended else None, exit_code=ended.exit_code if ended else None
    )
    return over, (record, Free(), Tell(error or _done(over, event)))


def _done(state: Assignment, event: WorkEnded) -> Done:
    assert event.ended is not None
    return Done(
        delegation_id=state.id,
        final_summary=event.ended.summary,
        sublet=DoneExtension(
            exit_code=event.ended.exit_code,
            link_losses=event.link_losses,
            interrupted_operations=event.interrupted_operations,
            prompts=list(state.prompts.told),
        ),
    )


def could_not_go_on(state: Assignment, event: Undone, now: Now) -> Step:
    """End without DONE where the end could not be journalled; else refuse who asked, and go on."""
    if isinstance(event.output, Record) and is_terminal(ASSIGNMENT_TABLE, event.output.now.state):
        # The journal still says that it runs, and the next start ends it; the peer hears no DONE that is not durable.
        told = event.output.error or event.error
        over, outputs = free_unrecorded(state, event)
        return over, (*outputs, Tell(told))
    return state, (Refuse(event.error),)


def free_unrecorded(state: Assignment, event: Undone) -> Step:
    """Give slot and place back of an end that could not be journalled."""
    assert isinstance(event.output, Record)
    return replace(event.output.now, holds=False), ((Free(),) if state.holds else ())


def killed(state: Assignment, event: Restarted, now: Now) -> Step:
    """End what an earlier process was at: its mount and its agent died with it."""
    if is_terminal(ASSIGNMENT_TABLE, state.state):
        return state, ()
    reason = "crashed" if state.state is AssignmentState.ACTIVE else None
    over = replace(state, state=advance(ASSIGNMENT_TABLE, state.state, AssignmentEvent.FAIL), holds=False)
    return over, (Record(over, error=event.error, reason=reason),)


def ended(state: Assignment, error: SubletError, *outputs: Output) -> Step:
    """End for ``error`` what no agent has begun."""
    over = replace(state, state=advance(ASSIGNMENT_TABLE, state.state, AssignmentEvent.FAIL), holds=False)
    return over, (Record(over, error=error), *((Free(),) if state.holds else ()), *outputs)


def stranger(state: State, event: StopCame | WindDownCame, now: Now) -> Step:
    """Refuse whoever is not the delegator, with the words for an id that was never heard of."""
    owner = state.owner if state is not None else None
    return state, ((Refuse(refusals.unknown()),) if event.owner is not None and event.owner != owner else ())
