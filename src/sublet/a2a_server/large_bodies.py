"""How many large bodies are here at a time: a few, and fewer of one caller.

A body of 2 MiB becomes some five times as much while it is read, parsed and looked at. Who is known may have as many
connections as the listener has, so what they hold is counted here and not by connection. A body that has no place is
left where it is, in the socket of who sends it.

A body that was refused lives on, with some four times its bytes: the SDK's wrappers for traces keep the error that
passes through them, and the error keeps their frames. Python's collector looks at such cycles seldom, so a place is
free only after a collection. One collection frees the places of all that ended since the last. It looks at young
objects alone, since a whole one takes 60 ms of the loop: the frames and the error were made a moment ago.

Weak: an error that something older keeps, such as the future of a thread, waits for a whole collection. A place is
given back after ``HELD_SECONDS`` also where the machine is too busy to have parsed the body by then.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Final

from starlette.types import Message, Send

MAX_LARGE: Final = 6
"""Large bodies of all callers together."""
MAX_LARGE_OF_CALLER: Final = 2
HELD_SECONDS: Final = 5.0
"""How long a place is kept at most after a body is whole: by then it is parsed, and work on it may take hours."""
COLLECT_SECONDS: Final = 0.1
"""Between two collections at least."""
_YOUNG: Final = 1
"""The generation up to which is looked."""


class LargeBodies:
    """Gives places to large bodies, first to who has asked first."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MAX_LARGE)
        self._of: dict[str, tuple[asyncio.Semaphore, int]] = {}
        self._ended: list[str] = []

    def place(self, caller: str) -> Place:
        """Return the place of one body, which is not taken yet."""
        return Place(self, caller)

    async def take(self, caller: str) -> None:
        """Wait for a place; who is cancelled meanwhile has none."""
        own, known = self._of.get(caller, (None, 0))
        own = own or asyncio.Semaphore(MAX_LARGE_OF_CALLER)
        self._of[caller] = (own, known + 1)
        try:
            await own.acquire()
            try:
                await self._all.acquire()
            except BaseException:
                own.release()
                raise
        except BaseException:
            self._forget(caller)
            raise

    def give_back(self, caller: str) -> None:
        """Let the next one have a place that ``take`` has given, as soon as nothing is left of its body."""
        self._ended.append(caller)
        if len(self._ended) == 1:
            asyncio.get_running_loop().call_later(COLLECT_SECONDS, self._collect)

    def _collect(self) -> None:
        gc.collect(_YOUNG)
        ended, self._ended = self._ended, []
        for caller in ended:
            self._release(caller)

    def _release(self, caller: str) -> None:
        self._all.release()
        self._of[caller][0].release()
        self._forget(caller)

    def _forget(self, caller: str) -> None:
        own, known = self._of.pop(caller)
        if known > 1:
            self._of[caller] = (own, known - 1)


class Place:
    """A place for the body of one request."""

    def __init__(self, bodies: LargeBodies, caller: str) -> None:
        self._bodies = bodies
        self._caller = caller
        self._taken = False
        self._timer: asyncio.TimerHandle | None = None
        self.waits = False

    async def take(self) -> None:
        """Wait for the place, once."""
        if not self._taken:
            self.waits = True
            await self._bodies.take(self._caller)
            self.waits = False
            self._taken = True

    def until_answered(self, send: Send) -> Send:
        """Give the place back as soon as the answer begins, or after ``HELD_SECONDS``."""
        if not self._taken:
            return send
        self._timer = asyncio.get_running_loop().call_later(HELD_SECONDS, self.give_back)

        async def answer(message: Message) -> None:
            self.give_back()
            await send(message)

        return answer

    def give_back(self) -> None:
        """Give the place back, if it is taken; it is not taken again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._taken:
            self._taken = False
            self._bodies.give_back(self._caller)
