"""Looking for a room before it is joined or knocked at, while its daemon is only just being reached."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sublet.messaging.membership import looking
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import ROOM_SALT_BYTES, room_id
from support.members import Member, member
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio


def late(asker: Member, questions: int) -> None:
    """Let the first questions for configs find nobody, as while a link opens or a room is not served yet."""
    ask, left = asker.network.query, [questions]

    def query(key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
        if key.endswith("/config/state") and left[0] > 0:
            left[0] -= 1
            return []
        return ask(key, payload, timeout_seconds)

    asker.network.query = query  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("policy", ["open", "knock"])
async def test_a_room_is_looked_for_until_its_daemon_is_reached(tmp_path: Path, policy: str) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = (await alice.bus.room.create(name="r", policy=policy))["room_id"]
        late(bob, 3)
        await bob.service.find_room(room)
        if policy == "open":
            assert (await bob.bus.room.join(room_id=room))["name"] == "r"
        else:
            await bob.bus.room.knock(room_id=room, text="it is Bob")


async def test_what_nobody_tells_of_is_unknown_and_not_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "FIND_SECONDS", 0.1)
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = room_id(alice.id, time.time_ns() // 1_000_000, b"\0" * ROOM_SALT_BYTES)
        await bob.service.find_room(room)
        for ask in (bob.bus.room.join, bob.bus.room.knock):
            with pytest.raises(SubletError) as refused:
                await ask(room_id=room)
            assert refused.value.code is LocalCode.NOT_FOUND
            assert "nobody who is reachable knows this room" in refused.value.message
