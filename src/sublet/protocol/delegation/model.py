"""What a delegation knows, what happens to it, and what it wants done: values only.

The journalled part of ``Delegation`` is what a process that is killed leaves to the next one; the rest dies with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Literal, TypeAlias

from sublet.protocol.bounds import AccessMode
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.messages import Accept

FollowUpState: TypeAlias = Literal["pending", "delivered", "running", "done", "failed", "refused"]


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


@dataclass(frozen=True, slots=True)
class Said:
    """A follow-up: ``pending`` until the executor has taken it, or ``refused`` it for ``why``."""

    id: str
    prompt: str
    digest: str
    state: FollowUpState = "pending"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Heard:
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
    follow_ups: tuple[Said, ...] = ()
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


def journalled(state: Delegation) -> Delegation:
    """Return what the journal keeps of ``state``: what dies with the process is as it was at first."""
    return Delegation(
        state.id,
        state.peer,
        state.access_mode,
        state.ttl_seconds,
        state.created_at,
        within=state.within,
        callers=state.callers,
        demands=state.demands,
        transports=state.transports,
        patient=state.patient,
        state=state.state,
        generation=state.generation,
        prepared=state.prepared,
        accept=state.accept,
        expires_at=state.expires_at,
        done=state.done,
        settled=state.settled,
        follow_ups=state.follow_ups,
    )


# What happens


@dataclass(frozen=True, slots=True)
class Created:
    """The delegation begins."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A process found the journalled delegation of one that was killed."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The directories are held, and it is recorded what the executor will see."""


@dataclass(frozen=True, slots=True)
class FoundAgain:
    """The directories are held again, as an earlier process has prepared them."""


@dataclass(frozen=True, slots=True)
class InviteUnheard:
    """INVITE was not answered. ``sent`` tells whether it may have arrived."""

    error: SubletError
    sent: bool = True


@dataclass(frozen=True, slots=True)
class InviteDue:
    """The time has passed that ``InviteLater`` has named."""


@dataclass(frozen=True, slots=True)
class AcceptCame:
    """The executor has agreed."""

    accept: Accept


@dataclass(frozen=True, slots=True)
class Opened:
    """The view is ready to be served."""


@dataclass(frozen=True, slots=True)
class ProgressCame:
    """The executor tells how far it is; ``running`` once its agent has the files."""

    running: bool
    heard: tuple[Heard, ...] = ()


@dataclass(frozen=True, slots=True)
class DoneCame:
    """The executor says that the work is done. ``failure`` is why it is not, as far as this side can tell."""

    heard: tuple[Heard, ...] = ()
    failure: SubletError | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """It can't go on. ``by_peer`` where the executor has said so, which holds nothing any more then."""

    error: SubletError
    by_peer: bool = False
    heard: tuple[Heard, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelCame:
    """Somebody on this side ends it."""

    error: SubletError


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A moment has come that ``core.wake_at`` has named."""


@dataclass(frozen=True, slots=True)
class ReadAsOver:
    """A reader was told that the lease is over by the clock. That stays true, even where the clock is set back."""


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


@dataclass(frozen=True, slots=True)
class ExtensionAllowed:
    """Policy has decided on an extension; ``error`` tells why not."""

    key: str
    more: int
    error: SubletError | None = None


@dataclass(frozen=True, slots=True)
class ExtensionAnswered:
    """The executor has agreed to ``agreed`` seconds, of ``asked`` that START has asked for, or to nothing at all."""

    key: str
    more: int
    asked: int = 0
    agreed: int = 0
    error: SubletError | None = None


@dataclass(frozen=True, slots=True)
class CallerLeft:
    """Who asked for the extension ``key`` does not wait for it any more; what was sent of it may have arrived."""

    key: str


@dataclass(frozen=True, slots=True)
class FollowUpSaid:
    """Somebody has a further prompt; ``digest`` tells another text under the same ``id`` from it."""

    id: str
    prompt: str
    digest: str


@dataclass(frozen=True, slots=True)
class FollowUpAnswered:
    """The executor has taken a follow-up, or refused it for ``why``."""

    id: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class FollowUpUnheard:
    """A follow-up was not answered; it may have arrived."""

    id: str


@dataclass(frozen=True, slots=True)
class FollowUpDue:
    """The time has passed that ``DeliverLater`` has named."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The audit is made, and the executor was told of the end, or could not be reached: ``told``."""

    told: bool


@dataclass(frozen=True, slots=True)
class Undone:
    """``output`` could not be done, nothing after it was, and the step that wanted it counts as not taken."""

    output: Output
    error: SubletError


Event: TypeAlias = (
    Created
    | TakenOver
    | Prepared
    | FoundAgain
    | InviteUnheard
    | InviteDue
    | AcceptCame
    | Opened
    | ProgressCame
    | DoneCame
    | Failed
    | CancelCame
    | TimePassed
    | ReadAsOver
    | ExtensionAsked
    | ExtensionAllowed
    | ExtensionAnswered
    | CallerLeft
    | FollowUpSaid
    | FollowUpAnswered
    | FollowUpUnheard
    | FollowUpDue
    | Settled
    | Undone
)


# What is to be done


@dataclass(frozen=True, slots=True)
class Record:
    """Make the journalled part of ``now`` durable before anything that follows.

    ``error`` tells why it ended, ``extended`` by how many seconds it was, ``said`` which follow-up is news.
    """

    now: Delegation
    error: SubletError | None = None
    extended: int = 0
    said: Said | None = None


@dataclass(frozen=True, slots=True)
class Prepare:
    """Scan and hold the directories and record what the executor will see; come back with ``Prepared``.

    ``again`` where an earlier process may have left some of that.
    """

    again: bool = False


@dataclass(frozen=True, slots=True)
class FindAgain:
    """Hold the directories again, as an earlier process has prepared them; come back with ``FoundAgain``.

    ``serve`` where they are to be ready to be served again by then.
    """

    serve: bool = False


@dataclass(frozen=True, slots=True)
class SendInvite:
    """Send INVITE, the same each time."""


@dataclass(frozen=True, slots=True)
class InviteLater:
    """Come back with ``InviteDue`` after ``seconds``; ``why`` tells what is waited for."""

    seconds: float
    why: Literal["busy", "offline", "unanswered"]
    error: SubletError


@dataclass(frozen=True, slots=True)
class Open:
    """Make the view ready to be served; come back with ``Opened``."""


@dataclass(frozen=True, slots=True)
class Serve:
    """Let the executor in until ``deadline`` on the steady clock; ``again`` where an earlier process did so."""

    deadline: float
    again: bool = False


@dataclass(frozen=True, slots=True)
class SendStart:
    """Send START and follow the work."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow the work that an earlier process has started, and renew its START."""


@dataclass(frozen=True, slots=True)
class AskPolicy:
    """Ask policy for a lease of ``ttl_seconds`` in all; come back with ``ExtensionAllowed``."""

    key: str
    more: int
    ttl_seconds: int


@dataclass(frozen=True, slots=True)
class SendExtension:
    """Send START with ``more`` seconds; come back with ``ExtensionAnswered``."""

    key: str
    more: int


@dataclass(frozen=True, slots=True)
class Lengthen:
    """Serve for ``seconds`` more."""

    seconds: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Send START with this follow-up; come back with ``FollowUpAnswered`` or ``FollowUpUnheard``."""

    said: Said


@dataclass(frozen=True, slots=True)
class DeliverLater:
    """Come back with ``FollowUpDue`` after ``seconds``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell the caller ``key`` that it is done."""

    key: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell the caller ``key`` why not."""

    key: str
    error: SubletError


@dataclass(frozen=True, slots=True)
class Revoke:
    """Cut access at once: when this returns, the credential is dead and every open handle with it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Make the audit and, where ``tell``, tell the executor of the end; come back with ``Settled``.

    ``again`` where an earlier process has held the directories, which are held again meanwhile.
    """

    tell: bool
    again: bool = False


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give back the directories; the executor's task, too, unless it is ``untold`` and has to be told later."""

    untold: bool


Output: TypeAlias = (
    Record
    | Prepare
    | FindAgain
    | SendInvite
    | InviteLater
    | Open
    | Serve
    | SendStart
    | Follow
    | AskPolicy
    | SendExtension
    | Lengthen
    | Deliver
    | DeliverLater
    | Answer
    | Refuse
    | Revoke
    | Settle
    | GiveBack
)
Step: TypeAlias = tuple[Delegation, tuple[Output, ...]]
