"""What happens to an assignment: each event that ``core.step`` decides on. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from sublet.protocol.assignment.outputs import AskPolicy, Output
from sublet.protocol.assignment.verdict import Ended
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import Accept, Invite, Start


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
    """START came from the peer whose key has the fingerprint ``owner``."""

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
