"""Forgetting a room: nothing of it stays here, and the others are told nothing, who keep theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.ports.store import Store
from sublet.messaging.writing.later import Later
from sublet.protocol.ezagent.ids import RoomId


class RemovesRooms(Protocol):
    """The part of the engine that removes what is forgotten."""

    @property
    def store(self) -> Store: ...


class ForgetsRooms(Protocol):
    """The engine, as it lets go of a room."""

    @property
    def later(self) -> Later: ...

    def forget_room(self, room_id: RoomId) -> None:
        """Let go of a room; nothing of it may wait to be written."""


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


def _put_off(engine: ForgetsRooms, room_id: RoomId) -> None:
    # After what is being written now is durable, which may be of this room.
    engine.later.after_commit(partial(engine.forget_room, room_id))


def _size(engine: RemovesRooms, room_id: RoomId) -> int:
    return engine.store.removal.size(room_id)


def _step(engine: RemovesRooms) -> bool:
    with engine.store.transaction():
        return engine.store.removal.step()
