"""How an agent's question finds its answer, the next follow-up."""

from __future__ import annotations

import asyncio
from typing import cast

import anyio
import pytest

from sublet.daemon.working.decisions import Decisions
from sublet.daemon.working.follow_ups import NextFollowUps
from sublet.protocol.assignment.events import QuestionAsked
from sublet.protocol.assignment.outputs import Prompt
from sublet.protocol.messages import FollowUp

pytestmark = pytest.mark.anyio

ANSWER = FollowUp(id="fup_" + "0" * 32, prompt="Take the second.")


class Deciding:
    """Gives the follow-up once the assignment was renewed for the third time."""

    def __init__(self) -> None:
        self.renewed = asyncio.Event()
        self.asked = 0

    async def feed(self, event: object) -> tuple[Prompt, ...]:
        """Take a question."""
        assert event == QuestionAsked()
        self.asked += 1
        return (Prompt(ANSWER),) if self.asked > 3 else ()

    def renew(self) -> None:
        """Wake whoever waits for a renewal."""
        renewed, self.renewed = self.renewed, asyncio.Event()
        renewed.set()


async def test_the_answer_is_asked_for_once_at_each_renewal() -> None:
    deciding = Deciding()
    found: list[FollowUp] = []

    async def wait() -> None:
        found.append(await NextFollowUps(cast("Decisions", deciding)).answer())

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            for renewals in range(1, 4):
                await anyio.wait_all_tasks_blocked()
                assert (deciding.asked, found) == (renewals, [])
                deciding.renew()
    assert (deciding.asked, found) == (4, [ANSWER])
