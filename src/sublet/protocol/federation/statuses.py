"""The states of an agent, in one table (federation appendix A, mended).

The specification's picture lets an agent that failed only shut down. Here it recovers, and anyone may shut down.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class AgentStatus(StrEnum):
    """What an agent of ours is at. What others say of theirs is kept as they say it."""

    INITIAL = "initial"
    IDLE = "idle"
    BUSY = "busy"
    ERROR = "error"
    SHUTDOWN = "shutdown"


class Happens(StrEnum):
    """What changes it."""

    REGISTER = "register"
    START = "start"
    COMPLETE = "complete"
    FAIL = "error"
    RECOVER = "recover"
    STOP = "stop"


NEXT: Final[Mapping[tuple[AgentStatus, Happens], AgentStatus]] = MappingProxyType(
    {
        (AgentStatus.INITIAL, Happens.REGISTER): AgentStatus.IDLE,
        (AgentStatus.IDLE, Happens.START): AgentStatus.BUSY,
        (AgentStatus.BUSY, Happens.COMPLETE): AgentStatus.IDLE,
        (AgentStatus.BUSY, Happens.FAIL): AgentStatus.ERROR,
        (AgentStatus.ERROR, Happens.RECOVER): AgentStatus.IDLE,
        **{(state, Happens.STOP): AgentStatus.SHUTDOWN for state in AgentStatus if state != AgentStatus.SHUTDOWN},
    }
)


class NoSuchStep(ValueError):
    """The table has no way from a state by what happens."""


def step(state: AgentStatus, happens: Happens) -> AgentStatus:
    """Return the state after something has happened.

    Raises:
        NoSuchStep: the table has no such way.
    """
    found = NEXT.get((state, happens))
    if found is None:
        raise NoSuchStep(f"an agent that is {state} can't {happens}")
    return found
