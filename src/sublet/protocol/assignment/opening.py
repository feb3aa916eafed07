"""The beginning of an assignment: INVITE and its one ACCEPT, START and the policy that is asked before it (AWCP 4).

Rules: the same INVITE of the same delegator gets the same ACCEPT while it waits, and another text under its id is
refused; of several STARTs one is taken; what a refused START would have needed is given back.
"""

from __future__ import annotations

from dataclasses import replace

from sublet.protocol.assignment import ending, granting, refusals
from sublet.protocol.assignment.events import (
    CallerLeft,
    InviteCame,
    InvitePrepared,
    InviteRefused,
    PolicySaid,
    StartCame,
    Undone,
)
from sublet.protocol.assignment.outputs import Answer, AskPolicy, Begin, Consider, Free, Record, Refuse, Step, TakeSlot
from sublet.protocol.assignment.state import Assignment, Considered, State
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import ASSIGNMENT_TABLE, AssignmentEvent, advance, is_terminal
from sublet.protocol.times import Now


def consider(_: None, event: InviteCame, now: Now) -> Step:
    """Have policy, slot and place decide on a new INVITE."""
    return Considered(event.invite, event.owner), (Consider(),)


def also_considered(state: Considered, event: InviteCame, now: Now) -> Step:
    """Let a repeated INVITE wait for the same answer; refuse another one under its id."""
    if event.owner != state.owner or not granting.same_invite(state.invite, event.invite):
        return state, (Refuse(refusals.used()),)
    return replace(state, askers=state.askers + 1), ()


def accept(state: Considered, event: InvitePrepared, now: Now) -> Step:
    """Agree, once that is durable; where nobody waits for the answer any more, give back what is held."""
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


def not_accepted(state: Considered, event: InviteRefused, now: Now) -> Step:
    """Refuse all who have asked, and forget the INVITE."""
    return None, (*((Free(),) if event.holds else ()), Refuse(event.error))


def not_recorded(state: Considered, event: Undone, now: Now) -> Step:
    """Refuse, and forget the INVITE: the ACCEPT is not durable."""
    return None, (Free(), Refuse(event.error))


def asker_left(state: Considered, event: CallerLeft, now: Now) -> Step:
    """Count one less who waits for the answer."""
    return replace(state, askers=max(0, state.askers - 1)), ()


def again(state: Assignment, event: InviteCame, now: Now) -> Step:
    """Say the same ACCEPT to the same INVITE; refuse another one under its id."""
    if event.owner != state.owner or not granting.same_invite(state.invite, event.invite):
        return state, (Refuse(refusals.used()),)
    return state, (Answer(state.accept),)


def used(state: Assignment, event: InviteCame, now: Now) -> Step:
    """Refuse an INVITE under an id that has had its work."""
    return state, (Refuse(refusals.used()),)


def ask_to_start(state: Assignment, event: StartCame, now: Now) -> Step:
    """Ask policy for the time that START gives; a START that does not fit its ACCEPT ends the assignment."""
    if event.owner != state.owner:
        return state, (Refuse(refusals.unknown()),)
    try:
        seconds = granting.seconds_left(state.accept, event.start, now)
    except SubletError as error:
        # The peer's task ends with this refusal, so no other START can follow that would need what is held.
        return ending.ended(state, error, Refuse(error))
    grant = granting.GrantedTime(seconds, seconds, now.steady)
    return state, (AskPolicy(event.start, event.owner, int(seconds), grant),)


def start(state: Assignment, event: PolicySaid, now: Now) -> Step:
    """Begin the work within what is left of the time that policy was asked about."""
    if event.error is not None:
        return ending.ended(state, event.error, Refuse(event.error))
    start = event.question.start
    try:
        seconds = min(granting.seconds_left(state.accept, start, now), event.question.grant.until - now.steady)
        if seconds <= 0:
            raise refusals.start_too_late()
    except SubletError as error:
        return ending.ended(state, error, Refuse(error))
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


def could_not_start(state: Assignment, event: Undone, now: Now) -> Step:
    """End what could not be begun, and refuse whoever has sent START."""
    if isinstance(event.output, Record) and is_terminal(ASSIGNMENT_TABLE, event.output.now.state):
        return ending.free_unrecorded(state, event)
    return ending.ended(state, event.error, Refuse(event.error))


def not_waiting(state: State, event: StartCame, now: Now) -> Step:
    """Refuse a START for what does not wait for one."""
    if not isinstance(state, Assignment) or event.owner != state.owner:
        return state, (Refuse(refusals.unknown()),)
    return state, (Refuse(refusals.not_waiting(state.state)),)


def asked_too_late(state: State, event: PolicySaid, now: Now) -> Step:
    """Refuse what policy was asked for, since the assignment is over by now."""
    if not isinstance(state, Assignment):
        return state, (Refuse(refusals.unknown()),)
    if event.question.renews:
        return state, (Refuse(refusals.not_running(state.state)),)
    return state, (Refuse(refusals.not_waiting(state.state)),)
