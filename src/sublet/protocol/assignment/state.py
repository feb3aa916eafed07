"""What an assignment knows: its journalled state and what a process adds. ``events`` and ``outputs`` have the rest.

The journalled part of ``Assignment`` is what a process that is killed leaves to the next one; the rest dies with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from sublet.protocol.assignment.prompts import Prompts
from sublet.protocol.bounds import AccessMode
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import AssignmentState
from sublet.protocol.messages import Accept, Invite


@dataclass(frozen=True, slots=True)
class Considered:
    """An INVITE that is being decided on: nothing of it is journalled, and all who sent it wait for one answer.

    ``askers`` counts those who still do.
    """

    invite: Invite
    owner: str
    askers: int = 1


@dataclass(frozen=True, slots=True)
class Assignment:
    """One assignment, from its ACCEPT on.

    Args:
        owner: fingerprint of the key of the delegator, whose words alone count.
        invite: what was asked for.
        accept: what was agreed to; the same content is said again to a repeated INVITE.
        state: as journalled.
        generation: the highest of the delegator's processes that has been heard.
        access_mode: as START gives it.
        expires_at: when the lease ends, by the delegator's clock.
        holds: whether this process holds a slot and a place for its files for it, which are given back once.
        waits_until: until when it waits for START, on the steady clock.
        waits_seconds: for how long that is in all.
        began: when the work began, on the steady clock.
        deadline: when the lease ends, on the steady clock.
        winds_down_at: when the agent is stopped in any case, on the steady clock.
        launched: whether the agent was started at all.
        interrupted: whether the agent was told to end now.
        stopped: why the work is to end at once, the first reason given.
        failed: for what the work is to end as failed, once the agent has had time to say so.
        prompts: the follow-ups.
    """

    owner: str
    invite: Invite
    accept: Accept
    state: AssignmentState = AssignmentState.PENDING
    generation: int = 1
    access_mode: AccessMode = "rw"
    expires_at: str | None = None
    holds: bool = False
    waits_until: float = inf
    waits_seconds: float = 0.0
    began: float = 0.0
    deadline: float = inf
    winds_down_at: float = inf
    launched: bool = False
    interrupted: bool = False
    stopped: SubletError | None = None
    failed: SubletError | None = None
    prompts: Prompts = field(default_factory=Prompts)

    @property
    def id(self) -> str:
        """The delegation's id."""
        return self.invite.delegation_id


State: TypeAlias = Assignment | Considered | None
