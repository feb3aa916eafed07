"""What an assignment wants done: each output of ``core.step``. Values only; the driver in the daemon does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sublet.protocol.assignment.granting import GrantedTime
from sublet.protocol.assignment.state import Assignment, State
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import Accept, Done, FollowUp, Start


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
    grant: GrantedTime
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
