"""Decides everything about one delegation, without sockets, files, clocks or chance (AWCP 3, DESIGN 4).

``step(state, event, now)`` returns the state that follows and what is to be done, in order. Its rules:

- What follows a ``Record`` is done only once that is durable. An output that can't be done ends the list: the driver
  keeps the state of the last ``Record`` that is durable, or else the one from before the step, and steps it with
  ``Undone``.
- The first end wins. Once a lease is over by any clock, whatever comes next is its expiry: a reader may have been told.
- DONE is an end of its own: neither a cancel nor the end of the lease undoes it while the audit is made.
- Access is cut in the very step that journals an end, and also where the end can't be journalled.
- A message that is late or doubled changes nothing.
- The time only ever shrinks, but for an extension that both sides have agreed to.

Weak: the executor is asked between two steps, so an extension is looked at again once it has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Any, Final

from sublet.protocol.delegation import reasons, steering
from sublet.protocol.delegation.agreement import (
    check_enforced,
    check_mount_point,
    check_transport,
    narrowed,
    resumable,
)
from sublet.protocol.delegation.model import (
    AcceptCame,
    CallerLeft,
    CancelCame,
    Created,
    Delegation,
    DoneCame,
    Event,
    ExtensionAllowed,
    ExtensionAnswered,
    ExtensionAsked,
    Failed,
    FindAgain,
    Follow,
    FollowUpAnswered,
    FollowUpDue,
    FollowUpSaid,
    FollowUpUnheard,
    FoundAgain,
    GiveBack,
    Heard,
    InviteDue,
    InviteLater,
    InviteUnheard,
    Open,
    Opened,
    Output,
    Phase,
    Prepare,
    Prepared,
    ProgressCame,
    ReadAsOver,
    Record,
    Refuse,
    Revoke,
    SendInvite,
    SendStart,
    Serve,
    Settle,
    Settled,
    Step,
    TakenOver,
    Undone,
)
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DELEGATION_TABLE, DelegationEvent, DelegationState, advance, is_terminal
from sublet.protocol.times import Now, rfc3339_of, unix_seconds

RETRY_PEER_SECONDS: Final = 2.0
"""How often an offline peer is tried again where the caller asked to wait for it."""
RECONNECT_PEER_SECONDS: Final = 5.0
"""How long a peer that nobody answers for is tried again: longer than the restart of a daemon takes."""
FIRST_RECONNECT_SECONDS: Final = 0.25
"""Doubled with each try."""
BUSY_PEER_SECONDS: Final = 30.0
"""How long a peer that says it is busy is asked again before the delegation fails for it."""

_GOING: Final = (DelegationState.STARTED, DelegationState.RUNNING)
_LIVE: Final = (Phase.PREPARING, Phase.INVITING, Phase.OPENING, Phase.GOING)


def step(state: Delegation, event: Event, now: Now) -> Step:
    """Return the state after ``event``, and what is to be done, in order.

    Args:
        state: as the last step has left it, or as it was journalled.
        event: what has happened.
        now: the time.
    """
    phase = phase_of(state)
    if phase in _LIVE and _is_expiry(state, event, now):
        expired, outputs = _end(state, DelegationEvent.EXPIRE, _time_over(state), held=_still_held(state, event))
        return expired, (*outputs, *steering.refusals(expired, event))
    return _TABLE[phase].get(type(event), _ignore)(state, event, now)


def phase_of(state: Delegation) -> Phase:
    """Return what the delegation is doing."""
    if state.left:
        return Phase.LEFT
    if state.settled:
        return Phase.SETTLED
    if not state.began:
        return Phase.NEW
    if state.done or is_terminal(DELEGATION_TABLE, state.state):
        return Phase.ENDING
    if state.state in _GOING:
        return Phase.GOING
    return {
        DelegationState.CREATED: Phase.PREPARING,
        DelegationState.INVITED: Phase.INVITING,
        DelegationState.ACCEPTED: Phase.OPENING,
    }[state.state]


def overdue(state: Delegation, now: Now) -> bool:
    """Tell whether the time of a delegation is over that nobody has ended yet."""
    lapsed = state.expires_at is not None and unix_seconds(state.expires_at) <= now.wall
    return lapsed or state.deadline <= now.steady


def wake_at(state: Delegation) -> float:
    """Return when ``TimePassed`` is due, on the steady clock; infinity where nothing waits for a time."""
    return state.deadline if phase_of(state) in _LIVE else inf


# The beginning


def _create(state: Delegation, event: Created, now: Now) -> Step:
    begun = replace(state, began=True, deadline=now.steady + state.ttl_seconds)
    return begun, (Record(begun), Prepare())


def _not_created(state: Delegation, event: Undone, now: Now) -> Step:
    return replace(state, left=True), (Refuse(state.id, event.error),)


def _take_over(state: Delegation, event: TakenOver, now: Now) -> Step:
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
    if phase_of(taken) is Phase.ENDING:
        return taken, (Record(taken), Settle(tell=taken.held, again=True))
    if taken.state is DelegationState.CREATED:
        return taken, (Record(taken), Prepare(again=True))
    serve = taken.state in _GOING and resumable(taken.accept) and not overdue(taken, now)
    return taken, (Record(taken), FindAgain(serve))


def _prepared(state: Delegation, event: Prepared, now: Now) -> Step:
    asking = replace(state, prepared=True, held=True, inviting_since=now.steady, patience=FIRST_RECONNECT_SECONDS)
    invited = _advanced(asking, DelegationEvent.INVITE)
    return invited, (Record(invited), SendInvite())


def _found_again(state: Delegation, event: FoundAgain, now: Now) -> Step:
    if state.state is DelegationState.INVITED:
        # An earlier process has invited, and may have been heard: the peer knows a repeated INVITE by its id.
        return replace(state, inviting_since=now.steady, patience=FIRST_RECONNECT_SECONDS), (SendInvite(),)
    if state.state is DelegationState.ACCEPTED and state.accept is not None:
        return _open(state, now)
    if resumable(state.accept):
        going, turn = steering.next_turn(replace(state, served=True), now)
        return going, (Serve(state.deadline, again=True), Follow(), *turn)
    return _end(state, DelegationEvent.FAIL, reasons.interrupted())


# INVITE


def _invite_unheard(state: Delegation, event: InviteUnheard, now: Now) -> Step:
    error, tried = event.error, now.steady - (now.steady if state.inviting_since is None else state.inviting_since)
    held = replace(state, reached=state.reached or event.sent, held=state.reached or event.sent)
    if error.code != LocalCode.PEER_UNREACHABLE:
        return _failed(held, Failed(error), now)
    wait = float(error.retry_after_seconds or 0)
    if wait and tried + wait < BUSY_PEER_SECONDS:
        return held, (InviteLater(wait, "busy", error),)
    if state.patient:
        return held, (InviteLater(max(wait, RETRY_PEER_SECONDS), "offline", error),)
    if not event.sent and tried + state.patience < RECONNECT_PEER_SECONDS:
        later = InviteLater(state.patience, "unanswered", error)
        return replace(held, patience=2 * state.patience), (later,)
    return _failed(held, Failed(error), now)


def _invite_again(state: Delegation, event: InviteDue, now: Now) -> Step:
    return replace(state, held=True), (SendInvite(),)


def _accepted(state: Delegation, event: AcceptCame, now: Now) -> Step:
    accept = event.accept
    try:
        check_mount_point(accept)
        check_enforced(state.demands, accept, state.peer)
        check_transport(state.transports, accept)
    except SubletError as error:
        return _end(state, DelegationEvent.FAIL, error)
    mode, seconds = narrowed(state.access_mode, state.ttl_seconds, accept)
    agreed = _advanced(state, DelegationEvent.ACCEPT, accept=accept, access_mode=mode, ttl_seconds=seconds)
    opening, outputs = _open(agreed, now)
    return opening, (Record(opening), *outputs)


# START


def _open(state: Delegation, now: Now) -> Step:
    """Open the view. Until now the time asked for bounded the wait; from here on the lease has it.

    What was waited for until now is not added to the time of the agent that asked.
    """
    seconds = float(state.ttl_seconds)
    if state.within is not None:
        seconds = min(seconds, state.within - now.wall)
    return replace(state, deadline=now.steady + seconds), (Open(),)


def _opened(state: Delegation, event: Opened, now: Now) -> Step:
    expires_at = rfc3339_of(now.wall + state.deadline - now.steady)
    # What is written down is rounded, and nothing is served for longer than that says.
    deadline = now.steady + unix_seconds(expires_at) - now.wall
    started = _advanced(state, DelegationEvent.START, expires_at=expires_at, deadline=deadline, served=True)
    return started, (Record(started), Serve(started.deadline), SendStart())


# The work


def _progress(state: Delegation, event: ProgressCame, now: Now) -> Step:
    outputs: tuple[Output, ...] = ()
    if event.running and state.state is DelegationState.STARTED:
        state = _advanced(state, DelegationEvent.RUN)
        outputs = (Record(state),)
    state, heard = steering.heard(state, event.heard)
    state, turn = steering.next_turn(state, now)
    return state, (*outputs, *heard, *turn)


def _done(state: Delegation, event: DoneCame, now: Now) -> Step:
    if event.failure is not None:
        return _end(state, DelegationEvent.FAIL, event.failure, held=False, heard=event.heard)
    outputs: tuple[Output, ...] = ()
    if state.state is DelegationState.STARTED:
        state = _advanced(state, DelegationEvent.RUN)
        outputs = (Record(state),)
    state, heard = steering.heard(state, event.heard)
    done = replace(state, done=True, held=False)
    return _closed(done, (*outputs, *heard, Record(done), Revoke("over"), Settle(tell=False)))


# The end


def _cancel(state: Delegation, event: CancelCame, now: Now) -> Step:
    return _end(state, DelegationEvent.CANCEL, event.error)


def _read_as_over(state: Delegation, event: ReadAsOver, now: Now) -> Step:
    return _end(state, DelegationEvent.EXPIRE, _time_over(state))


def _failed(state: Delegation, event: Failed, now: Now) -> Step:
    code = event.error.code
    how = DelegationEvent.FAIL
    if code in (ErrorCode.CANCELLED, ErrorCode.EXPIRED):
        how = DelegationEvent.CANCEL if code == ErrorCode.CANCELLED else DelegationEvent.EXPIRE
    return _end(state, how, event.error, held=state.held and not event.by_peer, heard=event.heard)


def _unrecorded(state: Delegation, event: Undone, now: Now) -> Step:
    """Cut access though that can't be written down; the next process finds it going, and settles it."""
    if isinstance(event.output, Record) and not _is_end(event.output.now):
        return _end(state, DelegationEvent.FAIL, event.error)
    if not isinstance(event.output, Record):
        return _failed(state, Failed(event.error), now)
    return _closed(replace(state, left=True), (Revoke(str(event.error.code)),))


def _unsettled(state: Delegation, event: Undone, now: Now) -> Step:
    return replace(state, left=True), ()


def _settled(state: Delegation, event: Settled, now: Now) -> Step:
    untold = state.held and not event.told
    settled = replace(state, settled=True, held=untold)
    if state.done and state.state is DelegationState.RUNNING:
        settled = _advanced(settled, DelegationEvent.DONE)
    return settled, (Record(settled), GiveBack(untold))


def _end(
    state: Delegation,
    how: DelegationEvent,
    error: SubletError,
    *,
    held: bool | None = None,
    heard: tuple[Heard, ...] = (),
) -> Step:
    """End by ``how``: journal it, cut access, and then tell the peer, if it may still ``held`` anything, and audit."""
    state, news = steering.heard(state, heard)
    over = _advanced(state, how, held=state.held if held is None else held)
    return _closed(over, (*news, Record(over, error=error), Revoke(str(error.code)), Settle(tell=over.held)))


def _closed(state: Delegation, outputs: tuple[Output, ...]) -> Step:
    """Refuse what callers still wait for, once the end is durable."""
    quiet, refusals = steering.closed(state)
    return quiet, (*outputs, *refusals)


def _time_over(state: Delegation) -> SubletError:
    return reasons.lease_over(state.ttl_seconds) if state.expires_at is not None else reasons.never_began()


def _is_expiry(state: Delegation, event: Event, now: Now) -> bool:
    """Tell whether the time is over that bounds ``event``.

    Nobody was told of an end before there was a lease, so that another one may still be the first.
    """
    ends = isinstance(event, CancelCame | Failed) and state.expires_at is None
    return overdue(state, now) and not ends and not isinstance(event, Undone)


def _still_held(state: Delegation, event: Event) -> bool:
    """Tell whether the peer may still hold its task after ``event``, which comes too late to count."""
    return state.held and not isinstance(event, DoneCame) and not (isinstance(event, Failed) and event.by_peer)


def _is_end(state: Delegation) -> bool:
    return state.done or is_terminal(DELEGATION_TABLE, state.state)


def _advanced(state: Delegation, how: DelegationEvent, **changes: Any) -> Delegation:
    return replace(state, state=advance(DELEGATION_TABLE, state.state, how), **changes)


def _ignore(state: Delegation, event: Event, now: Now) -> Step:
    return state, ()


Handler = Callable[[Any, Any, Now], Step]
_ENDS: Final[Mapping[type[Event], Handler]] = {
    CancelCame: _cancel,
    Failed: _failed,
    ReadAsOver: _read_as_over,
    Undone: _unrecorded,
}
_TOO_EARLY: Final[Mapping[type[Event], Handler]] = {
    ExtensionAsked: steering.refuse,
    ExtensionAllowed: steering.refuse,
    ExtensionAnswered: steering.refuse,
    FollowUpSaid: steering.refuse,
}
_TABLE: Final[Mapping[Phase, Mapping[type[Event], Handler]]] = {
    Phase.NEW: {Created: _create, TakenOver: _take_over, Undone: _not_created, **_TOO_EARLY},
    Phase.PREPARING: {Prepared: _prepared, **_ENDS, **_TOO_EARLY},
    Phase.INVITING: {
        FoundAgain: _found_again,
        InviteUnheard: _invite_unheard,
        InviteDue: _invite_again,
        AcceptCame: _accepted,
        **_ENDS,
        **_TOO_EARLY,
    },
    Phase.OPENING: {FoundAgain: _found_again, Opened: _opened, **_ENDS, **_TOO_EARLY},
    Phase.GOING: {
        FoundAgain: _found_again,
        ProgressCame: _progress,
        DoneCame: _done,
        ExtensionAsked: steering.extension_asked,
        ExtensionAllowed: steering.extension_allowed,
        ExtensionAnswered: steering.extension_answered,
        CallerLeft: steering.caller_left,
        FollowUpSaid: steering.follow_up_said,
        FollowUpAnswered: steering.follow_up_answered,
        FollowUpUnheard: steering.follow_up_unheard,
        FollowUpDue: steering.follow_up_due,
        **_ENDS,
    },
    Phase.ENDING: {Settled: _settled, Undone: _unsettled, **_TOO_EARLY},
    Phase.SETTLED: {**_TOO_EARLY},
    Phase.LEFT: {**_TOO_EARLY},
}
"""What each event does in each phase; what is not here changes nothing."""
