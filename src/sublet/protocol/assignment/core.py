"""Decides everything about one assignment, without sockets, files, clocks or chance (AWCP 4, DESIGN 4).

``step(state, event, now)`` returns the state that follows and what is to be done, in order. Its rules:

- What follows a ``Record`` is done only once that is durable. An output that can't be done ends the list: the driver
  keeps the state of the last ``Record`` that is durable, or else the one from before the step, and steps it with
  ``Undone``.
- The first end wins, and the first reason to stop is the one that is told.
- A message that is late, doubled or somebody else's changes nothing and is refused.
- What is held is given back by exactly one ``Free``.

Weak: policy is asked between two steps, so what it was asked about is looked at again once it has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Any, Final

from sublet.protocol.assignment import granting, refusals
from sublet.protocol.assignment.model import (
    AgentLaunched,
    Answer,
    AskPolicy,
    Assignment,
    Begin,
    CallerLeft,
    Consider,
    Considered,
    Event,
    Finish,
    Free,
    Interrupt,
    InviteCame,
    InvitePrepared,
    InviteRefused,
    Output,
    Phase,
    PolicySaid,
    Prompt,
    PromptEnded,
    QuestionAsked,
    Record,
    Refuse,
    Renew,
    RenewalCame,
    Restarted,
    StartCame,
    State,
    Step,
    StopCame,
    TakeSlot,
    Tell,
    TimePassed,
    Undone,
    WindDown,
    WindDownCame,
    WorkEnded,
)
from sublet.protocol.assignment.verdict import why_not_done
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import ASSIGNMENT_TABLE, AssignmentEvent, AssignmentState, advance, is_terminal
from sublet.protocol.messages import Done, DoneExtension, FollowUp, Start
from sublet.protocol.times import Now

LEASE_END_SLACK_SECONDS: Final = 0.5
"""What ends this close to the end of the lease, unfinished, was ended by the lease."""


def step(state: State, event: Event, now: Now) -> Step:
    """Return the state after ``event``, and what is to be done, in order.

    Args:
        state: as the last step has left it; None for an id that was never heard of.
        event: what has happened.
        now: the time.
    """
    handler = _TABLE[phase_of(state)].get(type(event), _ignore)
    return handler(state, event, now)


def phase_of(state: State) -> Phase:
    """Return what the assignment is doing."""
    if state is None:
        return Phase.UNKNOWN
    if isinstance(state, Considered):
        return Phase.CONSIDERED
    if is_terminal(ASSIGNMENT_TABLE, state.state) or not state.holds:
        return Phase.ENDED
    return Phase.WAITING if state.state is AssignmentState.PENDING else Phase.WORKING


def wake_at(state: State) -> float:
    """Return when ``TimePassed`` is due, on the steady clock; infinity where nothing waits for a time."""
    match phase_of(state), state:
        case Phase.WAITING, Assignment(waits_until=waits_until):
            return waits_until
        case Phase.WORKING, Assignment(interrupted=False, deadline=deadline, winds_down_at=winds_down_at):
            return min(deadline, winds_down_at)
    return inf


# INVITE


def _consider(_: None, event: InviteCame, now: Now) -> Step:
    return Considered(event.invite, event.owner), (Consider(),)


def _also_considered(state: Considered, event: InviteCame, now: Now) -> Step:
    if event.owner != state.owner or not granting.same_invite(state.invite, event.invite):
        return state, (Refuse(refusals.used()),)
    return replace(state, askers=state.askers + 1), ()


def _accept(state: Considered, event: InvitePrepared, now: Now) -> Step:
    if not state.askers:
        return None, (Free(),)
    accepted = Assignment(
        state.owner,
        state.invite,
        granting.narrowed(state.invite, event.accept),
        holds=True,
        waits_until=now.steady + event.seconds,
        waits_seconds=event.seconds,
    )
    return accepted, (Record(accepted), Answer(accepted.accept))


def _not_accepted(state: Considered, event: InviteRefused, now: Now) -> Step:
    return None, (*((Free(),) if event.holds else ()), Refuse(event.error))


def _not_recorded(state: Considered, event: Undone, now: Now) -> Step:
    return None, (Free(), Refuse(event.error))


def _asker_left(state: Considered, event: CallerLeft, now: Now) -> Step:
    return replace(state, askers=max(0, state.askers - 1)), ()


def _again(state: Assignment, event: InviteCame, now: Now) -> Step:
    if event.owner != state.owner or not granting.same_invite(state.invite, event.invite):
        return state, (Refuse(refusals.used()),)
    return state, (Answer(state.accept),)


def _used(state: Assignment, event: InviteCame, now: Now) -> Step:
    return state, (Refuse(refusals.used()),)


# START


def _ask_to_start(state: Assignment, event: StartCame, now: Now) -> Step:
    if event.owner != state.owner:
        return state, (Refuse(refusals.unknown()),)
    try:
        seconds = granting.seconds_left(state.accept, event.start, now)
    except SubletError as error:
        # The peer's task ends with this refusal, so no other START can follow that would need what is held.
        return _ended(state, error, Refuse(error))
    grant = granting.Grant(seconds, seconds, now.steady)
    return state, (AskPolicy(event.start, event.owner, int(seconds), grant),)


def _start(state: Assignment, event: PolicySaid, now: Now) -> Step:
    if event.error is not None:
        return _ended(state, event.error, Refuse(event.error))
    start = event.question.start
    try:
        seconds = min(granting.seconds_left(state.accept, start, now), event.question.grant.until - now.steady)
        if seconds <= 0:
            raise refusals.start_too_late()
    except SubletError as error:
        return _ended(state, error, Refuse(error))
    begun = replace(
        state,
        state=advance(ASSIGNMENT_TABLE, state.state, AssignmentEvent.START),
        generation=start.sublet.generation,
        access_mode=start.lease.access_mode,
        expires_at=start.lease.expires_at,
        began=now.steady,
        deadline=now.steady + seconds,
    )
    return begun, (TakeSlot(), Record(begun), Begin(start, begun.deadline))


def _could_not_start(state: Assignment, event: Undone, now: Now) -> Step:
    if isinstance(event.output, Record) and is_terminal(ASSIGNMENT_TABLE, event.output.now.state):
        return _free_unrecorded(state, event)
    return _ended(state, event.error, Refuse(event.error))


def _not_waiting(state: State, event: StartCame, now: Now) -> Step:
    if not isinstance(state, Assignment) or event.owner != state.owner:
        return state, (Refuse(refusals.unknown()),)
    return state, (Refuse(refusals.not_waiting(state.state)),)


def _asked_too_late(state: State, event: PolicySaid, now: Now) -> Step:
    if not isinstance(state, Assignment):
        return state, (Refuse(refusals.unknown()),)
    if event.question.renews:
        return state, (Refuse(refusals.not_running(state.state)),)
    return state, (Refuse(refusals.not_waiting(state.state)),)


# Renewals


def _ask_to_renew(state: Assignment, event: RenewalCame, now: Now) -> Step:
    if event.owner != state.owner:
        return state, (Refuse(refusals.unknown()),)
    try:
        grant = _granted(state, event.start, event.longest, now)
    except SubletError as error:
        return state, (Refuse(error),)
    worked = now.steady - state.began
    return state, (AskPolicy(event.start, event.owner, int(worked + grant.seconds), grant, renews=True),)


def _granted(state: Assignment, start: Start, longest: float, now: Now) -> granting.Grant:
    """Return what a renewal is granted now.

    Raises:
        SubletError: ``DECLINED``, ``START_EXPIRED`` or ``AUTH_FAILED``.
    """
    if state.interrupted or state.deadline <= now.steady:
        raise refusals.not_running(state.state)
    if start.sublet.follow_up is not None and (refusal := state.prompts.refusal(start.sublet.follow_up)) is not None:
        raise refusal
    if start.sublet.generation < state.generation:
        raise refusals.older_process()
    if start.lease.access_mode != state.access_mode:
        raise refusals.other_access(state.access_mode)
    return granting.renewal(
        start,
        expires_at=state.expires_at,
        began=state.began,
        deadline=state.deadline,
        longest=longest,
        asked=granting.asked_seconds(start, now),
        now=now,
    )


def _renew(state: Assignment, event: PolicySaid, now: Now) -> Step:
    question = event.question
    if not question.renews:
        return state, (Refuse(refusals.not_waiting(state.state)),)
    if event.error is not None:
        return state, (Refuse(event.error),)
    start = question.start
    try:
        # Others may have been answered, or time may have passed, while policy was asked.
        grant = question.grant.within(_granted(state, start, event.longest, now))
    except SubletError as error:
        return state, (Refuse(error),)
    renewed = replace(
        state,
        generation=start.sublet.generation,
        expires_at=grant.expires_at(start),
        deadline=grant.until,
        prompts=state.prompts if (more := start.sublet.follow_up) is None else state.prompts.take(more),
    )
    seconds = max(1, int(grant.seconds))
    constraints = state.accept.remote_constraints.model_copy(update={"max_ttl_seconds": seconds})
    answer = Answer(state.accept.model_copy(update={"remote_constraints": constraints}))
    ends_at = min(renewed.deadline, renewed.winds_down_at)
    return renewed, (Record(renewed, transition=False), Renew(start, renewed.deadline, ends_at), answer)


def _not_running(state: State, event: RenewalCame, now: Now) -> Step:
    if not isinstance(state, Assignment) or event.owner != state.owner:
        return state, (Refuse(refusals.unknown()),)
    return state, (Refuse(refusals.not_running(state.state)),)


# The agent


def _launched(state: Assignment, event: AgentLaunched, now: Now) -> Step:
    return replace(state, launched=True), ()


def _prompt_ended(state: Assignment, event: PromptEnded, now: Now) -> Step:
    prompts, follow_up = state.prompts.end(event.follow_up_id, event.reason, event.exit_code), None
    if event.reason not in ("timeout", "cancelled") and not state.interrupted:
        prompts, follow_up = prompts.next()
    return replace(state, prompts=prompts), (Finish() if follow_up is None else Prompt(follow_up),)


def _question_asked(state: Assignment, event: QuestionAsked, now: Now) -> Step:
    prompts, answer = state.prompts.answer()
    return replace(state, prompts=prompts), _given(answer)


def _given(follow_up: FollowUp | None) -> tuple[Output, ...]:
    return () if follow_up is None else (Prompt(follow_up),)


# The end


def _give_up(state: Assignment, event: StopCame | WindDownCame, now: Now) -> Step:
    if event.owner not in (None, state.owner):
        return state, (Refuse(refusals.unknown()),)
    return _ended(state, event.error)


def _caller_left(state: Assignment, event: CallerLeft, now: Now) -> Step:
    return _ended(state, event.error)


def _never_started(state: Assignment, event: TimePassed, now: Now) -> Step:
    if now.steady < state.waits_until:
        return state, ()
    return _ended(state, refusals.no_start(state.waits_seconds))


def _stop(state: Assignment, event: StopCame, now: Now) -> Step:
    if event.owner not in (None, state.owner):
        return state, (Refuse(refusals.unknown()),)
    return replace(state, stopped=state.stopped or event.error, interrupted=True), (Interrupt(),)


def _wind_down(state: Assignment, event: WindDownCame, now: Now) -> Step:
    if event.owner not in (None, state.owner):
        return state, (Refuse(refusals.unknown()),)
    if state.failed is not None or state.stopped is not None:
        return state, ()
    at = min(state.deadline, now.steady + event.seconds)
    wound = replace(state, failed=event.error, winds_down_at=at, prompts=state.prompts.close())
    return wound, (WindDown(event.error, at),)


def _time_over(state: Assignment, event: TimePassed, now: Now) -> Step:
    if now.steady < wake_at(state):
        return state, ()
    return replace(state, interrupted=True), (Interrupt(),)


def _work_ended(state: Assignment, event: WorkEnded, now: Now) -> Step:
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


def _could_not_go_on(state: Assignment, event: Undone, now: Now) -> Step:
    if isinstance(event.output, Record) and is_terminal(ASSIGNMENT_TABLE, event.output.now.state):
        # The journal still says that it runs, and the next start ends it; the peer hears no DONE that is not durable.
        told = event.output.error or event.error
        over, outputs = _free_unrecorded(state, event)
        return over, (*outputs, Tell(told))
    return state, (Refuse(event.error),)


def _free_unrecorded(state: Assignment, event: Undone) -> Step:
    assert isinstance(event.output, Record)
    return replace(event.output.now, holds=False), ((Free(),) if state.holds else ())


def _killed(state: Assignment, event: Restarted, now: Now) -> Step:
    """End what an earlier process was at: its mount and its agent died with it."""
    if is_terminal(ASSIGNMENT_TABLE, state.state):
        return state, ()
    reason = "crashed" if state.state is AssignmentState.ACTIVE else None
    over = replace(state, state=advance(ASSIGNMENT_TABLE, state.state, AssignmentEvent.FAIL), holds=False)
    return over, (Record(over, error=event.error, reason=reason),)


def _ended(state: Assignment, error: SubletError, *outputs: Output) -> Step:
    """End for ``error`` what no agent has begun."""
    over = replace(state, state=advance(ASSIGNMENT_TABLE, state.state, AssignmentEvent.FAIL), holds=False)
    return over, (Record(over, error=error), *((Free(),) if state.holds else ()), *outputs)


def _stranger(state: State, event: StopCame | WindDownCame, now: Now) -> Step:
    owner = state.owner if state is not None else None
    return state, ((Refuse(refusals.unknown()),) if event.owner is not None and event.owner != owner else ())


def _ignore(state: State, event: Event, now: Now) -> Step:
    return state, ()


Handler = Callable[[Any, Any, Now], Step]
_TABLE: Final[Mapping[Phase, Mapping[type[Event], Handler]]] = {
    Phase.UNKNOWN: {
        InviteCame: _consider,
        StartCame: _not_waiting,
        RenewalCame: _not_running,
        PolicySaid: _asked_too_late,
        StopCame: _stranger,
        WindDownCame: _stranger,
    },
    Phase.CONSIDERED: {
        InviteCame: _also_considered,
        InvitePrepared: _accept,
        InviteRefused: _not_accepted,
        CallerLeft: _asker_left,
        StartCame: _not_waiting,
        RenewalCame: _not_running,
        PolicySaid: _asked_too_late,
        StopCame: _stranger,
        WindDownCame: _stranger,
        Undone: _not_recorded,
    },
    Phase.WAITING: {
        InviteCame: _again,
        CallerLeft: _caller_left,
        StartCame: _ask_to_start,
        RenewalCame: _not_running,
        PolicySaid: _start,
        StopCame: _give_up,
        WindDownCame: _give_up,
        TimePassed: _never_started,
        Undone: _could_not_start,
    },
    Phase.WORKING: {
        InviteCame: _used,
        StartCame: _not_waiting,
        RenewalCame: _ask_to_renew,
        PolicySaid: _renew,
        StopCame: _stop,
        WindDownCame: _wind_down,
        AgentLaunched: _launched,
        PromptEnded: _prompt_ended,
        QuestionAsked: _question_asked,
        WorkEnded: _work_ended,
        TimePassed: _time_over,
        Undone: _could_not_go_on,
    },
    Phase.ENDED: {
        InviteCame: _used,
        StartCame: _not_waiting,
        RenewalCame: _not_running,
        PolicySaid: _asked_too_late,
        StopCame: _stranger,
        WindDownCame: _stranger,
        Restarted: _killed,
    },
}
"""What each event does in each phase; what is not here changes nothing and says nothing."""
