"""What a delegation is doing, told from its state, and when its time is over."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from math import inf
from typing import Any, Final

from sublet.protocol.delegation.state import Delegation
from sublet.protocol.lifecycle import DELEGATION_TABLE, DelegationEvent, DelegationState, advance, is_terminal
from sublet.protocol.times import Now, unix_seconds


class Phase(StrEnum):
    """What a delegation is doing; finer than its journalled state."""

    NEW = "new"
    PREPARING = "preparing"
    INVITING = "inviting"
    OPENING = "opening"
    GOING = "going"
    ENDING = "ending"
    SETTLED = "settled"
    LEFT = "left"


GOING: Final = (DelegationState.STARTED, DelegationState.RUNNING)
"""The journalled states in which the executor works."""
LIVE: Final = (Phase.PREPARING, Phase.INVITING, Phase.OPENING, Phase.GOING)
"""The phases that the end of the time ends."""


def phase_of(state: Delegation) -> Phase:
    """Return what the delegation is doing."""
    if state.left:
        return Phase.LEFT
    if state.settled:
        return Phase.SETTLED
    if not state.began:
        return Phase.NEW
    if is_end(state):
        return Phase.ENDING
    if state.state in GOING:
        return Phase.GOING
    return {
        DelegationState.CREATED: Phase.PREPARING,
        DelegationState.INVITED: Phase.INVITING,
        DelegationState.ACCEPTED: Phase.OPENING,
    }[state.state]


def lapsed(state: DelegationState, expires_at: str | None, *, done: bool, wall: float) -> bool:
    """Tell whether a lease is over by the clock on the wall, though nobody has ended it; a reader is told so at once.

    Work that was done in time is not undone by an audit that takes longer than the lease.

    Args:
        state: as journalled.
        expires_at: when the lease ends (RFC 3339); None as long as there is none.
        done: whether the executor has said DONE.
        wall: the time (Unix seconds).
    """
    if done or expires_at is None or is_terminal(DELEGATION_TABLE, state):
        return False
    return unix_seconds(expires_at) <= wall


def overdue(state: Delegation, now: Now) -> bool:
    """Tell whether the time of a delegation is over that nobody has ended yet, by either clock."""
    return lapsed(state.state, state.expires_at, done=state.done, wall=now.wall) or state.deadline <= now.steady


def wake_at(state: Delegation) -> float:
    """Return when ``TimePassed`` is due, on the steady clock; infinity where nothing waits for a time."""
    return state.deadline if phase_of(state) in LIVE else inf


def is_end(state: Delegation) -> bool:
    """Tell whether ``state`` has an end that nothing changes any more: a last state, or the executor's DONE."""
    return state.done or is_terminal(DELEGATION_TABLE, state.state)


def advanced(state: Delegation, how: DelegationEvent, **changes: Any) -> Delegation:
    """Return ``state`` one transition further, with ``changes`` of other fields.

    Raises:
        IllegalTransition: the table has no such way.
    """
    return replace(state, state=advance(DELEGATION_TABLE, state.state, how), **changes)
