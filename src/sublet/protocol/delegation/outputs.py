"""What a delegation wants done: each output of ``core.step``. Values only; the driver in the daemon does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from sublet.protocol.delegation.state import Delegation, SaidFollowUp
from sublet.protocol.errors import SubletError


@dataclass(frozen=True, slots=True)
class Record:
    """Make the journalled part of ``now`` durable before anything that follows.

    ``error`` tells why it ended, ``extended`` by how many seconds it was, ``said`` which follow-up is news.
    """

    now: Delegation
    error: SubletError | None = None
    extended: int = 0
    said: SaidFollowUp | None = None


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

    said: SaidFollowUp


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
