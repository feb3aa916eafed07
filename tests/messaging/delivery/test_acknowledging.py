"""Asking for acknowledgements: one question for each room at a time, whatever others publish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest

from protocol.ezagent.configs import ROOM
from sublet.messaging.delivery import acknowledging
from sublet.messaging.delivery.acknowledging import Acknowledging
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.syncing.asking import Answer, Asking
from sublet.messaging.syncing.doorkeeper import RoomQuestion

pytestmark = pytest.mark.anyio


class HeldQuestions:
    """Answers no question before it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = anyio.Event()

    async def ask(self, *_: object) -> list[Answer[bytes]]:
        """Count it."""
        self.asked += 1
        await self.go.wait()
        return []


async def test_a_room_is_asked_again_only_once_it_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledging, "GATHER_SECONDS", 0)
    questions, called = HeldQuestions(), 0

    async def call(_: Callable[..., Any]) -> tuple[RoomQuestion, None]:
        nonlocal called
        called += 1
        return RoomQuestion(b"?"), None

    made = Acknowledging(
        cast("Asking", questions), cast("CallEngine", call), lambda: None, lambda _: None, lambda *_: None
    )
    async with anyio.create_task_group() as group:
        group.start_soon(made.run)
        for _ in range(20):
            made.want(ROOM)
            await anyio.wait_all_tasks_blocked()
        assert called == 1
        questions.go.set()
        with anyio.fail_after(30):
            while questions.asked < 2:  # what was wanted meanwhile
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
