"""The lifecycle of a delegation and of an assignment, as tables that do not know which side they are on.

Two rules: every transition is in this file, and nothing here knows about sockets, files, clocks or roles.
``docs/design.md`` draws its diagrams from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class DelegationState(StrEnum):
    """States of a delegation (AWCP 8.1)."""

    CREATED = "created"
    INVITED = "invited"
    ACCEPTED = "accepted"
    STARTED = "started"
    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class DelegationEvent(StrEnum):
    """What may happen to a delegation."""

    INVITE = "invite"
    ACCEPT = "accept"
    START = "start"
    RUN = "run"
    DONE = "done"
    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"


class AssignmentState(StrEnum):
    """States of an assignment, the executor's record of one delegation."""

    PENDING = "pending"
    ACTIVE = "active"
    COMPLETED = "completed"
    ERROR = "error"


class AssignmentEvent(StrEnum):
    """What may happen to an assignment."""

    START = "start"
    DONE = "done"
    FAIL = "fail"


_S, _E = DelegationState, DelegationEvent
_ENDS: Mapping[DelegationEvent, DelegationState] = {
    _E.FAIL: _S.ERROR,
    _E.CANCEL: _S.CANCELLED,
    _E.EXPIRE: _S.EXPIRED,
}

DELEGATION_TABLE: Mapping[DelegationState, Mapping[DelegationEvent, DelegationState]] = {
    _S.CREATED: {_E.INVITE: _S.INVITED, **_ENDS},
    _S.INVITED: {_E.ACCEPT: _S.ACCEPTED, **_ENDS},
    _S.ACCEPTED: {_E.START: _S.STARTED, **_ENDS},
    _S.STARTED: {_E.RUN: _S.RUNNING, **_ENDS},
    _S.RUNNING: {_E.DONE: _S.COMPLETED, **_ENDS},
    _S.COMPLETED: {},
    _S.ERROR: {},
    _S.CANCELLED: {},
    _S.EXPIRED: {},
}

_A, _B = AssignmentState, AssignmentEvent
ASSIGNMENT_TABLE: Mapping[AssignmentState, Mapping[AssignmentEvent, AssignmentState]] = {
    _A.PENDING: {_B.START: _A.ACTIVE, _B.FAIL: _A.ERROR},
    _A.ACTIVE: {_B.DONE: _A.COMPLETED, _B.FAIL: _A.ERROR},
    _A.COMPLETED: {},
    _A.ERROR: {},
}

StateT = TypeVar("StateT", bound=StrEnum)
EventT = TypeVar("EventT", bound=StrEnum)


class IllegalTransition(RuntimeError):
    """A transition that the table does not have was asked for: a programming error, never the peer's fault."""


def advance(table: Mapping[StateT, Mapping[EventT, StateT]], state: StateT, event: EventT) -> StateT:
    """Return the state that follows ``state`` on ``event``.

    Raises:
        IllegalTransition: the table has no such transition.
    """
    try:
        return table[state][event]
    except KeyError:
        raise IllegalTransition(f"no transition from {state} on {event}") from None


def is_terminal(table: Mapping[StateT, Mapping[EventT, StateT]], state: StateT) -> bool:
    """Tell whether ``state`` has no way out."""
    return not table[state]
