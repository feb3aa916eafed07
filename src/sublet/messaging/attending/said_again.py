"""Says again what our own have said in passing, for those who came a moment later and so did not hear it.

Rules: whoever's token comes hears by now, so the rooms of such tokens are gathered for a moment and their words said
again, of a bounded number at a time and with a pause after each; however often tokens come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, Protocol

import anyio

from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.passing.ephemeral import Ephemeral
from sublet.protocol.ezagent.ids import RoomId

GATHER_SECONDS: Final = 0.2
PAUSE_SECONDS: Final = 2.0
"""After words were said again, until they are once more."""
MAX_AT_ONCE: Final = 64
"""Rooms whose words are said again after one pause."""
MAX_WAITING: Final = 4_096
"""Rooms that wait for it; of more, those that came first. What is not said again comes with the next look at a room."""


class PassingParts(Protocol):
    """The part of the engine that keeps what passes."""

    @property
    def ephemeral(self) -> Ephemeral: ...


class SaidAgain:
    """Used on the event loop.

    Args:
        call: runs something with the engine.
        soon: has something done on the event loop.
    """

    def __init__(self, call: CallEngine, soon: Callable[..., None]) -> None:
        self._call = call
        self._soon = soon
        self._rooms: dict[RoomId, None] = {}
        self._is_at_it = False

    def want(self, rooms: Iterable[RoomId]) -> None:
        """Say again soon what ours have said in these rooms."""
        for room_id in rooms:
            if len(self._rooms) < MAX_WAITING:
                self._rooms[room_id] = None
        if self._rooms and not self._is_at_it:
            self._is_at_it = True
            self._soon(self._run)

    async def _run(self) -> None:
        try:
            await anyio.sleep(GATHER_SECONDS)
            while self._rooms:
                rooms = list(islice(self._rooms, MAX_AT_ONCE))
                for room_id in rooms:
                    del self._rooms[room_id]

                def say(engine: PassingParts, rooms: list[RoomId] = rooms) -> None:
                    for room_id in rooms:
                        engine.ephemeral.say_again(room_id)

                await self._call(say)
                await anyio.sleep(PAUSE_SECONDS)
        finally:
            self._is_at_it = False
