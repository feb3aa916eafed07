"""How the server stops: what is about to end may be told to its end, then every stream is cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Stopping:
    """The stop of the server: ``now`` is set when what is still open has to end."""

    def __init__(self) -> None:
        self.now = anyio.Event()
        self._open = 0
        self._idle = anyio.Event()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request as open meanwhile."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()
                self._idle = anyio.Event()

    async def stop(self, seconds: float) -> None:
        """Give open requests up to ``seconds`` to end by themselves, then end the others.

        The work behind them has been stopped already, so that the streams of its tasks have their end still to tell:
        a peer that missed it would try to reach us until its lease is over.
        """
        if self.now.is_set():
            return
        with anyio.move_on_after(seconds):
            while self._open:
                await self._idle.wait()
        self.now.set()


class StopStreams:
    """Ends open streams when the server stops, as if their readers had gone.

    Args:
        app: what answers with streams.
        stopping: the server's stop.
    """

    def __init__(self, app: ASGIApp, stopping: Stopping) -> None:
        self._app = app
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = finished = False

        async def noting_send(message: Message) -> None:
            nonlocal started, finished
            started = True
            await send(message)
            finished = message["type"] == "http.response.body" and not message.get("more_body", False)

        async def receive_or_stop() -> Message:
            return await _first(receive, self._stopping.now)

        with self._stopping.request():
            await self._app(scope, receive_or_stop, noting_send)
        if started and not finished and self._stopping.now.is_set():
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _first(receive: Receive, stopping: anyio.Event) -> Message:
    """Return the next message, or a disconnect when ``stopping`` is set before it comes."""
    message: Message = {"type": "http.disconnect"}

    async def take() -> None:
        nonlocal message
        message = await receive()
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await stopping.wait()
        group.cancel_scope.cancel()
    return message
