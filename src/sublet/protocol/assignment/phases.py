"""What an assignment is doing, told from its state, and when it has to be woken."""

from __future__ import annotations

from enum import StrEnum
from math import inf

from sublet.protocol.assignment.state import Assignment, Considered, State
from sublet.protocol.lifecycle import ASSIGNMENT_TABLE, AssignmentState, is_terminal


class Phase(StrEnum):
    """What an assignment is doing; finer than its journalled state."""

    UNKNOWN = "unknown"
    CONSIDERED = "considered"
    WAITING = "waiting"
    WORKING = "working"
    ENDED = "ended"


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
