"""The beginning of a delegation: its first step, the take-over by a new process, INVITE, ACCEPT and START (AWCP 4).

Rules: INVITE is the same each time it is sent; an ACCEPT narrows and never widens; until START the time that was asked
for bounds the wait, and from then on the lease has it anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sublet.protocol.delegation import ending, phases, reasons, steering
from sublet.protocol.delegation.agreement import check_enforced, check_mount_point, check_transport, narrowed, resumable
from sublet.protocol.delegation.events import (
    AcceptCame,
    Created,
    Failed,
    FoundAgain,
    InviteDue,
    InviteUnheard,
    Opened,
    Prepared,
    TakenOver,
    Undone,
)
from sublet.protocol.delegation.outputs import (
    FindAgain,
    Follow,
    InviteLater,
    Open,
    Prepare,
    Record,
    Refuse,
    SendInvite,
    SendStart,
    Serve,
    Settle,
    Step,
)
from sublet.protocol.delegation.phases import Phase
from sublet.protocol.delegation.state import Delegation
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationEvent, DelegationState
from sublet.protocol.times import Now, rfc3339_of, unix_seconds

RETRY_PEER_SECONDS: Final = 2.0
"""How often an offline peer is tried again where the caller asked to wait for it."""


RECONNECT_PEER_SECONDS: Final = 5.0
"""How long a peer that nobody answers for is tried again: longer than the restart of a daemon takes."""


FIRST_RECONNECT_SECONDS: Final = 0.25
"""Doubled with each try."""


BUSY_PEER_SECONDS: Final = 30.0
"""How long a peer that says it is busy is asked again before the delegation fails for it."""


def create(state: Delegation, event: Created, now: Now) -> Step:
    """Journal the delegation, then scan and hold the directories."""
    begun = replace(state, began=True, deadline=now.steady + state.ttl_seconds)
    return begun, (Record(begun), Prepare())


def not_created(state: Delegation, event: Undone, now: Now) -> Step:
    """Refuse the caller: it could not be journalled, so there is no delegation."""
    return replace(state, left=True), (Refuse(state.id, event.error),)


def take_over(state: Delegation, event: TakenOver, now: Now) -> Step:
    """Go on with what an earlier process has left, as the next generation (DESIGN 4.10)."""
    ends = unix_seconds(state.expires_at) if state.expires_at else state.created_at + state.ttl_seconds
    if state.expires_at is not None and ends <= now.wall:
        # It is over; what it takes to audit it is held all the same.
        ends = now.wall + state.ttl_seconds
    taken = replace(
        state,
        generation=state.generation + 1,
        began=True,
        deadline=now.steady + ends - now.wall,
        held=state.prepared and not state.done,
        reached=state.prepared,
    )
    if phases.phase_of(taken) is Phase.ENDING:
        return taken, (Record(taken), Settle(tell=taken.held, again=True))
    if taken.state is DelegationState.CREATED:
        return taken, (Record(taken), Prepare(again=True))
    serve = taken.state in phases.GOING and resumable(taken.accept) and not phases.overdue(taken, now)
    return taken, (Record(taken), FindAgain(serve))


def prepared(state: Delegation, event: Prepared, now: Now) -> Step:
    """Journal what the executor will see, then send INVITE."""
    asking = replace(state, prepared=True, held=True, inviting_since=now.steady, patience=FIRST_RECONNECT_SECONDS)
    invited = phases.advanced(asking, DelegationEvent.INVITE)
    return invited, (Record(invited), SendInvite())


def found_again(state: Delegation, event: FoundAgain, now: Now) -> Step:
    """Go on where the earlier process was: invite, open the view, or serve it again; else end it as interrupted."""
    if state.state is DelegationState.INVITED:
        # An earlier process has invited, and may have been heard: the peer knows a repeated INVITE by its id.
        return replace(state, inviting_since=now.steady, patience=FIRST_RECONNECT_SECONDS), (SendInvite(),)
    if state.state is DelegationState.ACCEPTED and state.accept is not None:
        return open_view(state, now)
    if resumable(state.accept):
        going, turn = steering.next_turn(replace(state, served=True), now)
        return going, (Serve(state.deadline, again=True), Follow(), *turn)
    return ending.end(state, DelegationEvent.FAIL, reasons.interrupted())


def invite_unheard(state: Delegation, event: InviteUnheard, now: Now) -> Step:
    """Send INVITE again in a while where that may help and the time is not up; else fail."""
    error, tried = event.error, now.steady - (now.steady if state.inviting_since is None else state.inviting_since)
    held = replace(state, reached=state.reached or event.sent, held=state.reached or event.sent)
    if error.code != LocalCode.PEER_UNREACHABLE:
        return ending.failed(held, Failed(error), now)
    wait = float(error.retry_after_seconds or 0)
    if wait and tried + wait < BUSY_PEER_SECONDS:
        return held, (InviteLater(wait, "busy", error),)
    if state.patient:
        return held, (InviteLater(max(wait, RETRY_PEER_SECONDS), "offline", error),)
    if not event.sent and tried + state.patience < RECONNECT_PEER_SECONDS:
        later = InviteLater(state.patience, "unanswered", error)
        return replace(held, patience=2 * state.patience), (later,)
    return ending.failed(held, Failed(error), now)


def invite_again(state: Delegation, event: InviteDue, now: Now) -> Step:
    """Send the same INVITE once more; from now on the executor may hold a task."""
    return replace(state, held=True), (SendInvite(),)


def accepted(state: Delegation, event: AcceptCame, now: Now) -> Step:
    """Check what the executor has agreed to, and open the view within that (AWCP 4.2)."""
    accept = event.accept
    try:
        check_mount_point(accept)
        check_enforced(state.demands, accept, state.peer)
        check_transport(state.transports, accept)
    except SubletError as error:
        return ending.end(state, DelegationEvent.FAIL, error)
    mode, seconds = narrowed(state.access_mode, state.ttl_seconds, accept)
    agreed = phases.advanced(state, DelegationEvent.ACCEPT, accept=accept, access_mode=mode, ttl_seconds=seconds)
    opening, outputs = open_view(agreed, now)
    return opening, (Record(opening), *outputs)


def open_view(state: Delegation, now: Now) -> Step:
    """Open the view. Until now the time asked for bounded the wait; from here on the lease has it.

    What was waited for until now is not added to the time of the agent that asked.
    """
    seconds = float(state.ttl_seconds)
    if state.within is not None:
        seconds = min(seconds, state.within - now.wall)
    return replace(state, deadline=now.steady + seconds), (Open(),)


def opened(state: Delegation, event: Opened, now: Now) -> Step:
    """Begin the lease: journal its end, let the executor in, and send START."""
    expires_at = rfc3339_of(now.wall + state.deadline - now.steady)
    # What is written down is rounded, and nothing is served for longer than that says.
    deadline = now.steady + unix_seconds(expires_at) - now.wall
    started = phases.advanced(state, DelegationEvent.START, expires_at=expires_at, deadline=deadline, served=True)
    return started, (Record(started), Serve(started.deadline), SendStart())
