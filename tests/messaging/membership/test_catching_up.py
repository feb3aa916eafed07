"""Catching up after a link has changed, where the first questions come before what the other side serves is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from sublet.messaging.membership import catching_up
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio


class Deaf:
    """Lets a member's questions find nobody, for as long as it is on."""

    def __init__(self, one: Member) -> None:
        self.asked: list[str] = []
        self.on = True
        self._ask = one.network.query
        one.network.query = self.query  # type: ignore[method-assign]

    def query(self, key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
        answers = [] if self.on else self._ask(key, payload, timeout_seconds)
        self.asked.append(key)
        return answers

    def has_asked(self) -> bool:
        """Tell whether a room's newest messages were asked for, which comes last."""
        return sum("/index/" in key for key in self.asked) >= 2


async def until(check: Callable[[], bool]) -> None:
    with anyio.fail_after(SECONDS):
        while not check():
            await anyio.sleep(0.01)


async def test_who_could_not_be_asked_yet_is_asked_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "PERIOD_SECONDS", 10 * SECONDS)  # not by the look that comes from time to time
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        hub.loss = 1.0
        await alice.bus.message.send(room_id=room, body="while you were away")
        both = [Deaf(alice), Deaf(bob)]
        hub.heal()
        await until(lambda: all(one.has_asked() for one in both))
        for one in both:
            one.on = False
        with anyio.fail_after(SECONDS):
            while await bob.bodies(room) != ["while you were away"]:
                await anyio.sleep(0.01)
