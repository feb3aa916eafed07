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
from typing import Any, Final

from sublet.protocol.delegation import ending, opening, phases, steering
from sublet.protocol.delegation.events import (
    AcceptCame,
    CallerLeft,
    CancelCame,
    Created,
    DoneCame,
    Event,
    ExtensionAllowed,
    ExtensionAnswered,
    Failed,
    FollowUpAnswered,
    FollowUpDue,
    FollowUpSaid,
    FollowUpUnheard,
    FoundAgain,
    InviteDue,
    InviteUnheard,
    Opened,
    Prepared,
    ProgressCame,
    ReadAsOver,
    Settled,
    TakenOver,
    Undone,
)
from sublet.protocol.delegation.outputs import Step
from sublet.protocol.delegation.phases import Phase
from sublet.protocol.delegation.state import Delegation, ExtensionAsked
from sublet.protocol.lifecycle import DelegationEvent
from sublet.protocol.times import Now


def step(state: Delegation, event: Event, now: Now) -> Step:
    """Return the state after ``event``, and what is to be done, in order.

    Args:
        state: as the last step has left it, or as it was journalled.
        event: what has happened.
        now: the time.
    """
    phase = phases.phase_of(state)
    if phase in phases.LIVE and _is_expiry(state, event, now):
        expired, outputs = ending.end(
            state, DelegationEvent.EXPIRE, ending.time_over(state), held=_still_held(state, event)
        )
        return expired, (*outputs, *steering.refusals(expired, event))
    return _TABLE[phase].get(type(event), _ignore)(state, event, now)


def _is_expiry(state: Delegation, event: Event, now: Now) -> bool:
    """Tell whether the time is over that bounds ``event``.

    Nobody was told of an end before there was a lease, so that another one may still be the first.
    """
    ends = isinstance(event, CancelCame | Failed) and state.expires_at is None
    return phases.overdue(state, now) and not ends and not isinstance(event, Undone)


def _still_held(state: Delegation, event: Event) -> bool:
    """Tell whether the peer may still hold its task after ``event``, which comes too late to count."""
    return state.held and not isinstance(event, DoneCame) and not (isinstance(event, Failed) and event.by_peer)


def _ignore(state: Delegation, event: Event, now: Now) -> Step:
    return state, ()


Handler = Callable[[Any, Any, Now], Step]
_ENDS: Final[Mapping[type[Event], Handler]] = {
    CancelCame: ending.cancel,
    Failed: ending.failed,
    ReadAsOver: ending.read_as_over,
    Undone: ending.unrecorded,
}
_TOO_EARLY: Final[Mapping[type[Event], Handler]] = {
    ExtensionAsked: steering.refuse,
    ExtensionAllowed: steering.refuse,
    ExtensionAnswered: steering.refuse,
    FollowUpSaid: steering.refuse,
}
_TABLE: Final[Mapping[Phase, Mapping[type[Event], Handler]]] = {
    Phase.NEW: {Created: opening.create, TakenOver: opening.take_over, Undone: opening.not_created, **_TOO_EARLY},
    Phase.PREPARING: {Prepared: opening.prepared, **_ENDS, **_TOO_EARLY},
    Phase.INVITING: {
        FoundAgain: opening.found_again,
        InviteUnheard: opening.invite_unheard,
        InviteDue: opening.invite_again,
        AcceptCame: opening.accepted,
        **_ENDS,
        **_TOO_EARLY,
    },
    Phase.OPENING: {FoundAgain: opening.found_again, Opened: opening.opened, **_ENDS, **_TOO_EARLY},
    Phase.GOING: {
        FoundAgain: opening.found_again,
        ProgressCame: steering.progress,
        DoneCame: ending.done,
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
    Phase.ENDING: {Settled: ending.settled, Undone: ending.unsettled, **_TOO_EARLY},
    Phase.SETTLED: {**_TOO_EARLY},
    Phase.LEFT: {**_TOO_EARLY},
}
"""What each event does in each phase; what is not here changes nothing."""
