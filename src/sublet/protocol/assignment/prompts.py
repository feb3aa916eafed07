"""The prompts of an assignment: what waits, when it is too late, and how each ended (DESIGN 4.11).

Rule: an id counts once, however often it comes; once the last prompt has been worked on, none is taken any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from sublet.protocol.bounds import MAX_FOLLOW_UPS
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import FollowUp
from sublet.protocol.prompt_state import PromptState

MAX_WAITING_FOLLOW_UPS: Final = 16


@dataclass(frozen=True, slots=True)
class Prompts:
    """The follow-ups of one assignment, in the order in which they came, and how the prompts ended.

    Args:
        waiting: follow-ups that nobody has worked on yet, the oldest first.
        taken: ids of all follow-ups that were ever taken.
        closed: whether the last prompt has been worked on.
        ended: how the prompts ended that the agent was given, in order.
        answers: follow-ups that answered a question of the agent.
    """

    waiting: tuple[FollowUp, ...] = ()
    taken: frozenset[str] = frozenset()
    closed: bool = False
    ended: tuple[PromptState, ...] = ()
    answers: tuple[PromptState, ...] = ()

    @property
    def told(self) -> tuple[PromptState, ...]:
        """How each prompt ended, in order; empty where there was only the first."""
        return (*self.ended, *self.answers) if self.taken else ()

    def refusal(self, follow_up: FollowUp) -> SubletError | None:
        """Return why this follow-up can't be taken now; None where it can, or was taken before."""
        if follow_up.id in self.taken:
            return None
        if self.closed:
            return SubletError(
                ErrorCode.DECLINED, "the work is over already, so the follow-up came too late", "Delegate again."
            )
        if len(self.waiting) >= MAX_WAITING_FOLLOW_UPS or len(self.taken) >= MAX_FOLLOW_UPS:
            return SubletError(
                ErrorCode.DECLINED,
                f"{len(self.waiting)} follow-ups wait already, of {len(self.taken)} in all",
                "Wait until the agent has come to them, or delegate again.",
            )
        return None

    def take(self, follow_up: FollowUp) -> Prompts:
        """Take a follow-up for which there is no ``refusal``; taking it twice changes nothing."""
        if follow_up.id in self.taken:
            return self
        return replace(self, waiting=(*self.waiting, follow_up), taken=self.taken | {follow_up.id})

    def end(self, follow_up_id: str | None, reason: str, exit_code: int | None) -> Prompts:
        """Keep how a prompt ended; the first prompt has no id."""
        done = reason == "done"
        ended = PromptState(
            follow_up_id=follow_up_id,
            state="done" if done else "failed",
            reason=None if done else reason,
            exit_code=exit_code,
        )
        return replace(self, ended=(*self.ended, ended))

    def next(self) -> tuple[Prompts, FollowUp | None]:
        """Return the next follow-up; None where none waits, and from then on none is taken any more."""
        if self.waiting:
            return replace(self, waiting=self.waiting[1:]), self.waiting[0]
        return replace(self, closed=True), None

    def answer(self) -> tuple[Prompts, FollowUp | None]:
        """Return the next follow-up as the answer to a question of the agent; None where none has come yet."""
        if not self.waiting:
            return self, None
        answer = PromptState(follow_up_id=self.waiting[0].id, state="done")
        return replace(self, waiting=self.waiting[1:], answers=(*self.answers, answer)), self.waiting[0]

    def close(self) -> Prompts:
        """Take no more, and drop what waits."""
        return replace(self, closed=True, waiting=())
