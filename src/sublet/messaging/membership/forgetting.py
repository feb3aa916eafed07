"""Forgetting a room: nothing of it stays here, and the others are told nothing, who keep theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.engine.engine import Engine
from sublet.protocol.ezagent.ids import RoomId


class Forgetting:
    """Forgets rooms.

    Args:
        call: runs something with the engine.
        silence: hears and serves a room no more.
    """

    def __init__(self, call: CallEngine, silence: Callable[[RoomId], Awaitable[None]]) -> None:
        self._call = call
        self._silence = silence

    async def rooms(self, rooms: Sequence[RoomId]) -> None:
        """Forget rooms. When it returns they are gone; killed before, it goes on with the next one that is forgotten.

        A room is not taken up again when a peer offers it, only when somebody here looks for it by its id.
        """
        for room_id in rooms:
            await self._call(partial(_put_off, room_id=room_id))
            await self._silence(room_id)
        while await self._call(_step):
            pass

    async def sizes(self, rooms: Sequence[RoomId]) -> dict[RoomId, int]:
        """Return how many bytes each room takes."""
        return {room_id: await self._call(partial(_size, room_id=room_id)) for room_id in rooms}


def _put_off(engine: Engine, room_id: RoomId) -> None:
    # After what is being written now is durable, which may be of this room.
    engine.after_commit(partial(engine.forget_room, room_id))


def _size(engine: Engine, room_id: RoomId) -> int:
    return engine.store.removal.size(room_id)


def _step(engine: Engine) -> bool:
    with engine.store.transaction():
        return engine.store.removal.step()
