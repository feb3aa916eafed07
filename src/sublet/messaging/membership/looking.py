"""Looks for a room of which nobody has told, before it is joined or knocked at; on the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from sublet.messaging.engine.calling import CallEngine
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import RoomId, is_room_id

FIND_SECONDS: Final = 3.0
"""How long a room of which nobody has told is looked for: its link may be opening, or it was made a moment ago."""
FIND_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between these looks."""


async def find_room(
    call: CallEngine,
    attend: Callable[[RoomId], Awaitable[object]],
    ask: Callable[[RoomId], Awaitable[object]],
    room_id: RoomId,
) -> None:
    """Learn of a room from whoever has it.

    Where nobody tells of it, members are asked again for ``FIND_SECONDS``: right after pairing, or after the room
    was made, its daemon may not be reached yet.

    Args:
        call: runs something with the engine.
        attend: attends to the room.
        ask: asks its members.
        room_id: the room.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    if not is_room_id(room_id):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "not the id of a room", "sublet room list names them.")
    await call(lambda engine: engine.here.want(room_id))
    await attend(room_id)
    await ask(room_id)
    with anyio.move_on_after(FIND_SECONDS):
        for pause in FIND_PAUSES:
            if await call(lambda engine: engine.rooms.state(room_id).creator is not None):
                return
            await anyio.sleep(pause)
            await ask(room_id)
