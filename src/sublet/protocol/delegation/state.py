"""What a delegation knows: its journalled state and what a process adds. ``events`` and ``outputs`` have the rest.

The journalled part of ``Delegation`` is what a process that is killed leaves to the next one; the rest dies with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, TypeAlias

from sublet.protocol.bounds import AccessMode
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.messages import Accept

FollowUpState: TypeAlias = Literal["pending", "delivered", "running", "done", "failed", "refused"]


@dataclass(frozen=True, slots=True)
class SaidFollowUp:
    """A follow-up: ``pending`` until the executor has taken it, or ``refused`` it for ``why``."""

    id: str
    prompt: str
    digest: str
    state: FollowUpState = "pending"
    why: str = ""


@dataclass(frozen=True, slots=True)
class FollowUpNews:
    """What the executor says of the follow-up ``id``; ``why`` it failed, where it did."""

    id: str
    state: FollowUpState
    why: str = ""


@dataclass(frozen=True, slots=True)
class Delegation:
    """One delegation.

    Args:
        id: of the delegation.
        peer: what the executor is called here.
        access_mode: the widest access that is given, as ACCEPT has narrowed it.
        ttl_seconds: how long the lease is, as ACCEPT has narrowed it and extensions have lengthened it.
        created_at: Unix seconds.
        within: until when the caller's own lease lasts (Unix seconds), where an agent asked.
        callers: who called until here, in words, where an agent asked.
        demands: what the executor has to enforce.
        transports: what INVITE offers, the best first.
        patient: whether an executor that can't be reached is waited for.
        state: as journalled.
        generation: grows with every process that takes the delegation over.
        prepared: whether it is recorded what the executor will see.
        accept: what the executor has agreed to.
        expires_at: when the lease ends (RFC 3339); None as long as there is none.
        done: whether the executor has said DONE; only the audit is left to do then.
        settled: whether nothing is left to do.
        follow_ups: in the order in which they were said.
        began: whether this process has begun to drive it.
        deadline: when it ends by the steady clock, the time that was asked for or, from START on, the lease.
        served: whether this process has let the executor in.
        held: whether the executor may hold a task that it was not told the end of.
        reached: whether some INVITE may have arrived there.
        inviting_since: when this process first sent INVITE, on the steady clock.
        patience: seconds until INVITE is sent again to an executor that nobody answers for.
        turn: the key of the extension, or the id of the follow-up, that is being agreed on with the executor.
        extensions: those that wait for their turn.
        delivery_wait: seconds until a follow-up is sent again to a silent executor; 0 where it was heard last.
        left: whether its end could not be journalled, so that the next process has to settle it.
    """

    id: str
    peer: str
    access_mode: AccessMode
    ttl_seconds: int
    created_at: float
    within: float | None = None
    callers: str = ""
    demands: tuple[str, ...] = ()
    transports: tuple[str, ...] = ("sshfs",)
    patient: bool = False
    state: DelegationState = DelegationState.CREATED
    generation: int = 1
    prepared: bool = False
    accept: Accept | None = None
    expires_at: str | None = None
    done: bool = False
    settled: bool = False
    follow_ups: tuple[SaidFollowUp, ...] = ()
    began: bool = False
    deadline: float = inf
    served: bool = False
    held: bool = False
    reached: bool = False
    inviting_since: float | None = None
    patience: float = 0.0
    turn: str | None = None
    extensions: tuple[ExtensionAsked, ...] = ()
    delivery_wait: float = 0.0
    left: bool = False


@dataclass(frozen=True, slots=True)
class ExtensionAsked:
    """Somebody wants more time.

    Args:
        key: names the caller, for the answer.
        seconds: more time.
        longest: for how many seconds any lease may last here.
        within: until when the caller's own lease lasts (Unix seconds), where an agent asked for the delegation.
    """

    key: str
    seconds: int
    longest: int
    within: float | None = None
