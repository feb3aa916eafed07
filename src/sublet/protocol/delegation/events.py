"""What happens to a delegation: each event that ``core.step`` decides on. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sublet.protocol.delegation.outputs import Output
from sublet.protocol.delegation.state import ExtensionAsked, FollowUpNews
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import Accept


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
    heard: tuple[FollowUpNews, ...] = ()


@dataclass(frozen=True, slots=True)
class DoneCame:
    """The executor says that the work is done. ``failure`` is why it is not, as far as this side can tell."""

    heard: tuple[FollowUpNews, ...] = ()
    failure: SubletError | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """It can't go on. ``by_peer`` where the executor has said so, which holds nothing any more then."""

    error: SubletError
    by_peer: bool = False
    heard: tuple[FollowUpNews, ...] = ()


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
