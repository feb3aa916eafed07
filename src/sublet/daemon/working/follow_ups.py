"""How what an agent has asked meanwhile finds its answer, the next follow-up (DESIGN 4.11)."""

from __future__ import annotations

from sublet.daemon.working.decisions import Decisions
from sublet.protocol.assignment.events import QuestionAsked
from sublet.protocol.assignment.outputs import Prompt
from sublet.protocol.messages import FollowUp


class NextFollowUps:
    """The follow-ups of an assignment that runs."""

    def __init__(self, decisions: Decisions) -> None:
        self._decisions = decisions

    async def answer(self) -> FollowUp:
        """``FollowUps.answer``."""
        while True:
            renewed = self._decisions.renewed
            for reply in await self._decisions.feed(QuestionAsked()):
                if isinstance(reply, Prompt):
                    return reply.follow_up
            await renewed.wait()
