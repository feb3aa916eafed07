"""Further prompts for an assignment that runs: what waits, when it is too late, and how each ended (DESIGN 4.11)."""

from __future__ import annotations

import asyncio
from collections import deque

from sublet.protocol.bounds import MAX_FOLLOW_UPS
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import FollowUp, PromptState
from sublet.supervisor.model import Outcome

MAX_WAITING_FOLLOW_UPS = 16


class FollowUps:
    """The follow-ups of one assignment, in the order in which they came. Each id counts once."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._waiting: deque[FollowUp] = deque()
        self._closed = False
        self._ended: list[PromptState] = []
        self._answers: list[PromptState] = []
        self._arrived = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether the last prompt has been worked on, so that no other is taken."""
        return self._closed

    def known(self, follow_up: FollowUp) -> bool:
        """Tell whether this one was taken before."""
        return follow_up.id in self._known

    @property
    def any(self) -> bool:
        """Whether there was ever one."""
        return bool(self._known)

    @property
    def worked_on(self) -> int:
        """How many prompts have ended."""
        return len(self._ended)

    @property
    def prompts(self) -> tuple[PromptState, ...]:
        """How each prompt ended, in order; empty where there was only the first."""
        return (*self._ended, *self._answers) if self.any else ()

    def ended(self, follow_up_id: str | None, outcome: Outcome) -> None:
        """Keep how a prompt ended; the first prompt has no id."""
        done = outcome.reason == "done"
        ended = PromptState(
            follow_up_id=follow_up_id,
            state="done" if done else "failed",
            reason=None if done else outcome.reason,
            exit_code=outcome.exit_code,
        )
        self._ended.append(ended)

    def check(self, follow_up: FollowUp) -> None:
        """Refuse what can't be taken now.

        Raises:
            SubletError: ``DECLINED``: the work is over, or too many wait.
        """
        if self.known(follow_up):
            return
        if self._closed:
            raise SubletError(
                ErrorCode.DECLINED, "the work is over already, so the follow-up came too late", "Delegate again."
            )
        if len(self._waiting) >= MAX_WAITING_FOLLOW_UPS or len(self._known) >= MAX_FOLLOW_UPS:
            raise SubletError(
                ErrorCode.DECLINED,
                f"{len(self._waiting)} follow-ups wait already, of {len(self._known)} in all",
                "Wait until the agent has come to them, or delegate again.",
            )

    def add(self, follow_up: FollowUp) -> None:
        """Take one; taking it twice changes nothing.

        Raises:
            SubletError: as ``check``.
        """
        self.check(follow_up)
        if not self.known(follow_up):
            self._known.add(follow_up.id)
            self._waiting.append(follow_up)
            arrived, self._arrived = self._arrived, asyncio.Event()
            arrived.set()

    def next(self) -> FollowUp | None:
        """Return the next one; None where none waits, and from then on none is taken any more."""
        if self._waiting:
            return self._waiting.popleft()
        self._closed = True
        return None

    async def answer(self) -> FollowUp:
        """Take the next one, as soon as there is one, as the answer to what the agent has asked meanwhile."""
        while not self._waiting:
            await self._arrived.wait()
        follow_up = self._waiting.popleft()
        self._answers.append(PromptState(follow_up_id=follow_up.id, state="done"))
        return follow_up

    def close(self) -> None:
        """Take no more, and drop what waits."""
        self._closed = True
        self._waiting.clear()
