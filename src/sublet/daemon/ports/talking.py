"""What an assignment needs to talk with the side that lends: an addition, without which nothing is different."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from sublet.protocol.messages import FollowUp
from sublet.supervisor.job import Deadline


class FollowUps(Protocol):
    """The follow-ups of an assignment, as an agent that asks something sees them."""

    async def answer(self) -> FollowUp:
        """Take the next one, as soon as there is one, as the answer to what the agent has asked meanwhile."""


@dataclass(frozen=True, slots=True, eq=False)
class TalkingWork:
    """An assignment while its agent works.

    Args:
        id: the delegation's.
        agent: who works.
        delegator: node id of the daemon that lends.
        room_id: where both sides talk; None where they do not.
        follow_ups: further prompts, of which one that comes while the agent asks is the answer.
        asking: tells the delegator that the agent asks something, with a line for the log; None once it does not.
        deadline: when the lease ends.
    """

    id: str
    agent: str
    delegator: str
    room_id: str | None
    follow_ups: FollowUps
    asking: Callable[[str | None, str], None]
    deadline: Deadline


class Talking(Protocol):
    """Lets agents at work talk; none of it ever waits or fails."""

    def entity(self, agent: str) -> str | None:
        """Return as whom an agent speaks in rooms; None where it does not."""

    def begins(self, work: TalkingWork) -> None:
        """Take work whose agent may talk from now on."""

    def ends(self, work: TalkingWork, summary: str | None) -> None:
        """Take the agent's last words, where it had any; it says nothing any more."""


class _Silent:
    def entity(self, agent: str) -> str | None:
        return None

    def begins(self, work: TalkingWork) -> None:
        return None

    def ends(self, work: TalkingWork, summary: str | None) -> None:
        return None


SILENT: Final[Talking] = _Silent()
