"""What finds no room on its way to the event loop is made up for, and what fails there ends nothing."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from sublet.messaging.extensions.presence import PRESENCES
from sublet.messaging.running import hand_over
from support.members import SECONDS, member, room_of
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio


async def test_a_token_that_goes_while_too_much_is_to_do_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand_over, "MAX_TODO", 8)
    hub = MemoryHub()
    async with (
        member("alice", 1, hub, tmp_path, more=(PRESENCES,)) as alice,
        member("bob", 2, hub, tmp_path, more=(PRESENCES,)) as bob,
    ):
        room = await room_of(alice, bob)

        async def there() -> set[str]:
            return {one["entity"] for one in await alice.bus.presence.list(room_id=room)}

        with anyio.fail_after(SECONDS):
            while await there() != {alice.id, bob.id}:
                await anyio.sleep(0.01)
        for _ in range(20):  # no step of the event loop between: only eight of these find room
            alice.service._hand_over.soon(bool)
        hub.cut(alice.network, bob.network)
        with anyio.fail_after(SECONDS):
            while await there() != {alice.id}:
                await anyio.sleep(0.01)


async def test_what_fails_ends_nothing_else() -> None:
    done: list[str] = []

    def fails() -> None:
        raise ValueError("of somebody else")

    async def fails_later() -> None:
        await anyio.sleep(0)
        raise ValueError("of somebody else")

    async def overflowed() -> None:
        done.append("overflowed")

    over = hand_over.HandOver()
    over.begin(overflowed)
    async with anyio.create_task_group() as group:
        group.start_soon(over.dispatch, group)
        for run in (fails, fails_later, lambda: done.append("done")):
            over.soon(run)
        with anyio.fail_after(SECONDS):
            while not done:
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert done == ["done"]
