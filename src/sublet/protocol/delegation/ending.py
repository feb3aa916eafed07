"""The end of a delegation: DONE, failure, cancel and expiry, and the audit that settles it (AWCP 6.4, DESIGN 4).

Rules: an end is journalled, then access is cut, then the executor is told and the audit made. Where an end can't be
journalled, access is cut all the same, and the next process settles the delegation.
"""

from __future__ import annotations

from dataclasses import replace

from sublet.protocol.delegation import phases, reasons, steering
from sublet.protocol.delegation.events import CancelCame, DoneCame, Failed, ReadAsOver, Settled, Undone
from sublet.protocol.delegation.outputs import GiveBack, Output, Record, Revoke, Settle, Step
from sublet.protocol.delegation.state import Delegation, FollowUpNews
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.lifecycle import DelegationEvent, DelegationState
from sublet.protocol.times import Now


def done(state: Delegation, event: DoneCame, now: Now) -> Step:
    """Take the executor's DONE: from here on nothing but the audit is left. One that hides a failure ends as that."""
    if event.failure is not None:
        return end(state, DelegationEvent.FAIL, event.failure, held=False, heard=event.heard)
    outputs: tuple[Output, ...] = ()
    if state.state is DelegationState.STARTED:
        state = phases.advanced(state, DelegationEvent.RUN)
        outputs = (Record(state),)
    state, heard = steering.take_news(state, event.heard)
    done = replace(state, done=True, held=False)
    return closed(done, (*outputs, *heard, Record(done), Revoke("over"), Settle(tell=False)))


def cancel(state: Delegation, event: CancelCame, now: Now) -> Step:
    """End it, since somebody on this side wants so."""
    return end(state, DelegationEvent.CANCEL, event.error)


def read_as_over(state: Delegation, event: ReadAsOver, now: Now) -> Step:
    """End it as expired: a reader was told so already."""
    return end(state, DelegationEvent.EXPIRE, time_over(state))


def failed(state: Delegation, event: Failed, now: Now) -> Step:
    """End it for an error: as cancelled or expired where its code says so. Who has said it holds nothing any more."""
    code = event.error.code
    how = DelegationEvent.FAIL
    if code in (ErrorCode.CANCELLED, ErrorCode.EXPIRED):
        how = DelegationEvent.CANCEL if code == ErrorCode.CANCELLED else DelegationEvent.EXPIRE
    return end(state, how, event.error, held=state.held and not event.by_peer, heard=event.heard)


def unrecorded(state: Delegation, event: Undone, now: Now) -> Step:
    """Cut access though that can't be written down; the next process finds it going, and settles it."""
    if isinstance(event.output, Record) and not phases.is_end(event.output.now):
        return end(state, DelegationEvent.FAIL, event.error)
    if not isinstance(event.output, Record):
        return failed(state, Failed(event.error), now)
    return closed(replace(state, left=True), (Revoke(str(event.error.code)),))


def unsettled(state: Delegation, event: Undone, now: Now) -> Step:
    """Leave it to the next process, since its end could not be journalled."""
    return replace(state, left=True), ()


def settled(state: Delegation, event: Settled, now: Now) -> Step:
    """Close it: the audit is made. An executor that could not be told of the end is told later."""
    untold = state.held and not event.told
    settled = replace(state, settled=True, held=untold)
    if state.done and state.state is DelegationState.RUNNING:
        settled = phases.advanced(settled, DelegationEvent.DONE)
    return settled, (Record(settled), GiveBack(untold))


def end(
    state: Delegation,
    how: DelegationEvent,
    error: SubletError,
    *,
    held: bool | None = None,
    heard: tuple[FollowUpNews, ...] = (),
) -> Step:
    """End by ``how``: journal it, cut access, and then tell the peer, if it may still ``held`` anything, and audit."""
    state, news = steering.take_news(state, heard)
    over = phases.advanced(state, how, held=state.held if held is None else held)
    return closed(over, (*news, Record(over, error=error), Revoke(str(error.code)), Settle(tell=over.held)))


def closed(state: Delegation, outputs: tuple[Output, ...]) -> Step:
    """Refuse what callers still wait for, once the end is durable."""
    quiet, refusals = steering.closed(state)
    return quiet, (*outputs, *refusals)


def time_over(state: Delegation) -> SubletError:
    """Return why it is over: the lease has ended, or there never was one."""
    return reasons.lease_over(state.ttl_seconds) if state.expires_at is not None else reasons.never_began()
