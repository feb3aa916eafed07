"""HTTP connections with deadlines: for headers that never end, and for readers that do not read."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
MAX_WAITING = 128
"""Connections that may be open without a whole request. Beyond it the one that has been so for longest makes room: a
request takes milliseconds to arrive, so whoever opens many and stays silent or slow keeps nobody out."""
STUCK_READER_SECONDS = 20.0
"""How long a full send buffer may stay full. Each waiting event of a task holds a copy of that task."""


class DeadlineProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 connection; uvicorn itself only bounds the time between two requests."""

    cuts_stuck_readers = True
    _body_since: float | None = None
    _header_deadline: asyncio.TimerHandle | None = None
    _reader_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """Start to wait for the first request."""
        self._make_room()
        super().connection_made(transport)
        self._watch_headers()

    def data_received(self, data: bytes) -> None:
        """Take data; a request that is not complete must be so in time."""
        super().data_received(data)
        self._watch_body()
        self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines."""
        self._end_header_deadline()
        self._end_reader_deadline()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the reader does not keep up."""
        super().pause_writing()
        if self.cuts_stuck_readers and self._reader_deadline is None:
            self._reader_deadline = self.loop.call_later(STUCK_READER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the reader has caught up."""
        self._end_reader_deadline()
        super().resume_writing()

    def shutdown(self) -> None:
        """Begin to leave. Nobody waits for the rest of a request that has not come whole by now."""
        super().shutdown()
        if self._body_since is not None and not self.cycle.response_started:
            self.transport.abort()

    def _make_room(self) -> None:
        silent = [(since, other) for other in self.connections if (since := _silent_since(other)) is not None]
        if len(silent) >= MAX_WAITING:
            longest = min(silent, key=lambda entry: entry[0])[1]
            # At once, since asyncio accepts many connections before it tells of one that is gone.
            self.connections.discard(longest)
            longest.transport.abort()

    def _watch_body(self) -> None:
        if self.conn.their_state is not h11.SEND_BODY:
            self._body_since = None
        elif self._body_since is None:
            self._body_since = self.loop.time()

    def _watch_headers(self) -> None:
        answering = self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY)
        if answering or self.timeout_keep_alive_task is not None:
            self._end_header_deadline()
        elif self._header_deadline is None:
            # Also after an answer that was given before the request was complete, so that nobody can trickle its
            # rest for ever.
            self._header_deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _end_header_deadline(self) -> None:
        if self._header_deadline is not None:
            self._header_deadline.cancel()
            self._header_deadline = None

    def _end_reader_deadline(self) -> None:
        if self._reader_deadline is not None:
            self._reader_deadline.cancel()
            self._reader_deadline = None


def _silent_since(connection: object) -> float | None:
    """Return since when ``connection`` waits for a request or the rest of one; None where it has one whole."""
    if not isinstance(connection, DeadlineProtocol):
        return None  # it became a WebSocket
    if connection._body_since is not None:
        return connection._body_since
    if connection._header_deadline is not None:
        return connection._header_deadline.when() - HEADER_SECONDS
    if connection.timeout_keep_alive_task is not None:
        return connection.timeout_keep_alive_task.when() - connection.timeout_keep_alive
    return None
