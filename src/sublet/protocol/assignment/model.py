"""What an assignment knows, what happens to it, and what it wants done: values only.

The journalled part of ``Assignment`` is what a process that is killed leaves to the next one; the rest dies with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import TypeAlias

from sublet.protocol.assignment.granting import Grant
from sublet.protocol.assignment.prompts import Prompts
from sublet.protocol.assignment.verdict import Ended
from sublet.protocol.bounds import AccessMode
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import AssignmentState
from sublet.protocol.messages import Accept, Done, FollowUp, Invite, Start


class Phase(StrEnum):
    """What an assignment is doing; finer than its journalled state."""

    UNKNOWN = "unknown"
    CONSIDERED = "considered"
    WAITING = "waiting"
    WORKING = "working"
    ENDED = "ended"


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


def journalled(state: Assignment) -> Assignment:
    """Return what the journal keeps of ``state``: what dies with the process is as it was at first."""
    return Assignment(
        state.owner,
        state.invite,
        state.accept,
        state=state.state,
        generation=state.generation,
        access_mode=state.access_mode,
        expires_at=state.expires_at,
    )


# What happens


@dataclass(frozen=True, slots=True)
class InviteCame:
    """INVITE came from the peer whose key has the fingerprint ``owner``."""

    invite: Invite
    owner: str


@dataclass(frozen=True, slots=True)
class InvitePrepared:
    """Policy allows the INVITE, and slot and place for its files are held: ``accept`` may be said.

    ``seconds`` is for how long they are held without a START.
    """

    accept: Accept
    seconds: float


@dataclass(frozen=True, slots=True)
class InviteRefused:
    """The INVITE that is considered can't be accepted; ``holds`` where slot or place were taken for it already."""

    error: SubletError
    holds: bool = False


@dataclass(frozen=True, slots=True)
class CallerLeft:
    """Who sent the INVITE has given up waiting for its answer, or was told it and has gone at once."""

    error: SubletError


@dataclass(frozen=True, slots=True)
class StartCame:
    """START came."""

    start: Start
    owner: str


@dataclass(frozen=True, slots=True)
class RenewalCame:
    """START came for work that runs. ``longest`` is for how many seconds any work may take here."""

    start: Start
    owner: str
    longest: float


@dataclass(frozen=True, slots=True)
class PolicySaid:
    """Policy has decided on ``question``; ``error`` tells why not. ``longest`` is as in ``RenewalCame``."""

    question: AskPolicy
    error: SubletError | None = None
    longest: float = inf


@dataclass(frozen=True, slots=True)
class StopCame:
    """The work has to end now: a cancel, a peer that was removed, a slot that another got, the stop of the daemon.

    ``owner`` is who wants it; None where it is this side.
    """

    error: SubletError
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class WindDownCame:
    """The delegator wants the work to end as failed for ``error``, after ``seconds`` at most."""

    error: SubletError
    seconds: float
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class AgentLaunched:
    """The agent is about to be started."""


@dataclass(frozen=True, slots=True)
class PromptEnded:
    """The agent has ended a prompt: INVITE's where ``follow_up_id`` is None."""

    follow_up_id: str | None
    reason: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """The agent waits for an answer, which is the next follow-up."""


@dataclass(frozen=True, slots=True)
class WorkEnded:
    """The agent has ended, and its files are given up.

    Args:
        ended: what the agent said, None where it did not come to that.
        failure: what went wrong on this side, if anything.
        flushed: whether all writes have arrived.
        lost: why the link to the files was lost for good, None where it was not.
        left: what is still here of the directory, in words, if anything.
        link_losses: how often the link was lost and came back.
        interrupted_operations: calls that failed for it.
    """

    ended: Ended | None
    failure: SubletError | None = None
    flushed: bool = True
    lost: str | None = None
    left: str = ""
    link_losses: int = 0
    interrupted_operations: int = 0


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A moment has come that ``core.wake_at`` has named."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """A process found the journalled assignment of one that was killed."""

    error: SubletError


@dataclass(frozen=True, slots=True)
class Undone:
    """``output`` could not be done, nothing after it was, and the step that wanted it counts as not taken."""

    output: Output
    error: SubletError


Event: TypeAlias = (
    InviteCame
    | InvitePrepared
    | InviteRefused
    | CallerLeft
    | StartCame
    | RenewalCame
    | PolicySaid
    | StopCame
    | WindDownCame
    | AgentLaunched
    | PromptEnded
    | QuestionAsked
    | WorkEnded
    | TimePassed
    | Restarted
    | Undone
)


# What is to be done


@dataclass(frozen=True, slots=True)
class Consider:
    """Ask policy for the INVITE, take slot and place, and come back with ``InvitePrepared`` or ``InviteRefused``."""


@dataclass(frozen=True, slots=True)
class Record:
    """Make the journalled part of ``now`` durable before anything that follows.

    ``error``, ``reason`` and ``exit_code`` tell how it ended; ``transition`` whether its state is another one.
    """

    now: Assignment
    transition: bool = True
    error: SubletError | None = None
    reason: str | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """Say ACCEPT to whoever has asked."""

    accept: Accept


@dataclass(frozen=True, slots=True)
class Refuse:
    """Say to whoever has asked why not."""

    error: SubletError


@dataclass(frozen=True, slots=True)
class AskPolicy:
    """Ask policy whether work with ``start`` may go on for ``ttl_seconds`` in all; come back with ``PolicySaid``."""

    start: Start
    owner: str
    ttl_seconds: int
    grant: Grant
    renews: bool = False


@dataclass(frozen=True, slots=True)
class TakeSlot:
    """Use the slot that was promised."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Mount, work and unmount, until ``deadline`` on the steady clock."""

    start: Start
    deadline: float


@dataclass(frozen=True, slots=True)
class Renew:
    """Go on with what ``start`` says, until ``deadline`` on the steady clock; the agent ends at ``ends_at``."""

    start: Start
    deadline: float
    ends_at: float


@dataclass(frozen=True, slots=True)
class WindDown:
    """Tell the agent's side that it is about to be ended for ``error``, at ``at`` on the steady clock."""

    error: SubletError
    at: float


@dataclass(frozen=True, slots=True)
class Interrupt:
    """End the agent now, unmount, and come back with ``WorkEnded``."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Give the agent this follow-up."""

    follow_up: FollowUp


@dataclass(frozen=True, slots=True)
class Finish:
    """There is no further prompt: unmount, and come back with ``WorkEnded``."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the delegator how the work ended."""

    end: Done | SubletError


@dataclass(frozen=True, slots=True)
class Free:
    """Give slot and place back."""


Output: TypeAlias = (
    Consider
    | Record
    | Answer
    | Refuse
    | AskPolicy
    | TakeSlot
    | Begin
    | Renew
    | WindDown
    | Interrupt
    | Prompt
    | Finish
    | Tell
    | Free
)
Step: TypeAlias = tuple[State, tuple[Output, ...]]
