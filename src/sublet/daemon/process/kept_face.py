"""How the daemon runs its faces and hears signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio

from sublet.daemon.ports.face import Face
from sublet.daemon.process.endings import Stop
from sublet.disk.identity import identity_of
from sublet.tasks import Service, Services

MAX_BESIDE = 8
"""Faces of one kind at one time, where the socket of each was taken away from it."""


@contextmanager
def signals(stop: Stop) -> Iterator[None]:
    """Have SIGTERM, SIGINT and the end of the terminal ask ``stop`` for a clean end."""
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup's wish
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop.ask)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class Place:
    """Where a face is reached: made before it, for those who have to tell others, and filled once it has started."""

    def __init__(self) -> None:
        self.address = ""


class KeptFace:
    """A face that a service keeps: where it has failed, another one is made and takes its place.

    Args:
        name: what ``status`` calls it.
        make: returns the face, given the address that the one before it had; None for the first.
        place: is told where it is reached.
    """

    def __init__(self, name: str, make: Callable[[str | None], Face], place: Place | None = None) -> None:
        self._place = place or Place()
        self._make = make
        self._face = make(None)
        self._started = False
        self._identity: tuple[int, int] | None = None
        self._anew = anyio.Event()
        self.running = False
        self.service = Service(name, self._serve)

    @property
    def address(self) -> str:
        """Where it is reached, once ``start`` has returned."""
        return self._face.address

    async def start(self) -> None:
        """Bind.

        Raises:
            SubletError: ``UNAVAILABLE`` where that is not possible.
        """
        await self._face.start()
        self._take(self._face)

    def is_there(self) -> bool:
        """Tell whether the socket of a face whose address is a path is still the one that it listens on."""
        return identity_of(self._face.address) == self._identity

    def make_anew(self) -> None:
        """Make another face beside this one, whose socket is gone; who is connected to the old one goes on there."""
        self._anew.set()

    async def _serve(self) -> None:
        if not self._started:
            await self._replace()
        try:
            async with anyio.create_task_group() as group:
                for _ in range(MAX_BESIDE):
                    group.start_soon(self._face.serve)
                    self._anew, self.running = anyio.Event(), True
                    await self._anew.wait()
                    self.running = False
                    await self._replace()
                group.cancel_scope.cancel()
        finally:
            self._started = self.running = False
            self._face.release()
        raise Remade(f"its socket was gone {MAX_BESIDE} times")

    async def _replace(self) -> None:
        made = self._make(self._face.address)
        await made.start()
        self._take(made)

    def _take(self, started: Face) -> None:
        self._face, self._started = started, True
        self._place.address = started.address
        self._identity = identity_of(started.address)


class Remade(Exception):
    """A face was made beside itself so often that those who are connected to old ones have to go."""


@asynccontextmanager
async def started(services: Services, *faces: KeptFace) -> AsyncIterator[None]:
    """Start ``faces`` and serve them beside the body. If one can't start, stop those before it."""
    async with anyio.create_task_group() as group:
        try:
            for face in faces:
                await face.start()
                services.start(group, face.service)
            yield
        finally:
            group.cancel_scope.cancel()
