"""What the other devices of ours learn at once: rooms that came to be here, and which devices there are now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.syncing.wanted import Offer
from sublet.protocol.ezagent.ids import EntityId, RoomId


class DeviceParts(Protocol):
    """The parts of the engine for knowing who has several devices."""

    @property
    def here(self) -> RoomsHere: ...

    @property
    def keyring(self) -> Keyring: ...


class OtherDevices:
    """Tells them; on the event loop. Whoever misses it learns it with the next answer.

    Args:
        call: runs something with the engine.
        want: has something told soon.
        say_here: tells a room that ours are there, and which devices they have.
    """

    def __init__(
        self, call: CallEngine, want: Callable[[Offer], None], say_here: Callable[[RoomId], Awaitable[None]]
    ) -> None:
        self._call = call
        self._want = want
        self._say_here = say_here

    async def tell(self, entity: EntityId) -> None:
        """Tell all rooms of one of ours which devices it has."""
        for room_id in await self._call(lambda engine: [state.room_id for state in engine.here.of(entity)]):
            await self._say_here(room_id)

    async def offer(self, room_id: RoomId) -> None:
        """Tell the other devices of ours of a room that is here now."""
        for entity in await self._call(partial(with_several, room_id=room_id)):
            self._want(Offer(room_id, entity))


def with_several(engine: DeviceParts, room_id: RoomId | None = None) -> list[EntityId]:
    """Return those of ours that have several devices, in one room or at all."""
    ours = [entity for entity in engine.keyring.local if engine.keyring.has_several(entity)]
    return [entity for entity in ours if room_id is None or engine.here.is_member(entity, room_id)]
