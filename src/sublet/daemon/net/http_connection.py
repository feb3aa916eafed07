"""HTTP connections with bounds: on what a stranger's request may cost, on time, and on how many there are.

What is refused before any application sees it, and so before anybody is authenticated:

- a body of a GET, HEAD or any other method that takes none; a body whose length is not told (``Transfer-Encoding``),
  since a chunk of one byte costs as much as one of many;
- more than ``MAX_HEADER_LINES`` lines of head, whatever their size;
- a longer head than its server takes, also where all of it comes at once.

Each application decides from the headers who asks before it reads a body, and bounds the body of strangers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from sublet.daemon.net.slots import Slots, Standing
from sublet.protocol.errors import LocalCode, SubletError

HEADER_SECONDS: Final = 10.0
STUCK_READER_SECONDS: Final = 20.0
"""How long a full send buffer may stay full. Each waiting event of a task holds a copy of that task."""
MAX_HEAD_BYTES: Final = 16 << 10
MAX_HEADER_LINES: Final = 100
"""Parsing costs as much for each line as for kilobytes of one."""
LINGER_SECONDS: Final = 1.0
"""How long an answer has to arrive before the connection is closed on a body that nobody reads. Closed at once, the
system would throw away the answer too."""
MAX_UNREAD_BYTES: Final = 64 << 10
"""Of a body that comes after its answer: if that is all of it, the connection goes on, as callers expect."""
KNOWN_KEY: Final = "connection_known"
"""In ``scope["state"]``: what an application calls once it knows who is at the other end."""
_WITHOUT_BODY: Final = (b"GET", b"HEAD", b"TRACE", b"CONNECT")
_BUSY: Final = SubletError(
    LocalCode.UNAVAILABLE, "the daemon has too many connections", "Try again; close some of them if it stays so."
)


class _Head(h11.Connection):
    """h11's parser, with a bound on lines and on what a request may bring along.

    Args:
        head_bytes: of a request line with its headers. h11 itself bounds what has not come whole alone.
    """

    refusal: tuple[int, str] = (400, "Invalid HTTP request received.")

    def __init__(self, head_bytes: int) -> None:
        super().__init__(h11.SERVER, head_bytes)
        self._head_bytes = head_bytes

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return what comes next.

        Raises:
            h11.RemoteProtocolError: it is refused; ``refusal`` is the status and why.
        """
        if self.their_state is h11.IDLE:
            came = self.trailing_data[0]
            begun = came[: self._head_bytes]
            ends = [at for end in (b"\n\r\n", b"\n\n") if (at := begun.find(end)) >= 0]
            if begun.count(b"\n", 0, min(ends, default=len(begun))) > MAX_HEADER_LINES:
                self._refuse(431, "The request has too many headers.")
            if not ends and len(came) > self._head_bytes:
                self._refuse(431, "The head of the request is too long.")
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._check(event)
        return event

    def _check(self, request: h11.Request) -> None:
        declared = b"0"
        for name, value in request.headers:
            if name == b"transfer-encoding":
                self._refuse(411, "Send the body with its Content-Length.")
            if name == b"content-length":
                declared = value
        if request.method in _WITHOUT_BODY and declared.strip(b"0"):
            self._refuse(400, "A request of this method has no body.")

    def _refuse(self, status: int, why: str) -> None:
        self.refusal = status, why
        raise h11.RemoteProtocolError(why, error_status_hint=status)


class DeadlineProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 connection; uvicorn itself only bounds the time between two requests."""

    cuts_stuck_readers = True
    slots = Slots(256)
    """Of its listener; ``server_config`` makes a class of connections for each."""
    address = ""
    _known = False
    _body_since: float | None = None
    _stuck_since: float | None = None
    _header_deadline: asyncio.TimerHandle | None = None
    _reader_deadline: asyncio.TimerHandle | None = None
    _linger: asyncio.TimerHandle | None = None
    _unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """Start to wait for the first request."""
        self.conn = _Head(self.config.h11_max_incomplete_event_size or MAX_HEAD_BYTES)
        # A dictionary of its own, or all connections would share what one is known by.
        self.app_state = {**self.app_state, KNOWN_KEY: self.known}
        super().connection_made(transport)
        self.address = self.address or (str(self.client[0]) if self.client else "")
        self._watch_headers()
        if not self.slots.take(self):
            self.give_way()

    def known(self) -> None:
        """Note that the caller has shown who it is, so that strangers give way before it."""
        self._known = True

    def data_received(self, data: bytes) -> None:
        """Take data; a request that is not complete must be so in time."""
        if self._linger is not None:
            self._unread += len(data)
            if self._unread > MAX_UNREAD_BYTES:
                return
        super().data_received(data)
        if self._linger is not None and self.conn.our_state is not h11.DONE:
            # The body has come whole, and was thrown away: the next request may come.
            self._linger.cancel()
            self._linger, self._unread = None, 0
        self._watch_body()
        self._watch_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines."""
        self.slots.leave(self)
        self._end_header_deadline()
        self._end_reader_deadline()
        if self._linger is not None:
            self._linger.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Note that the reader does not keep up."""
        super().pause_writing()
        self._stuck_since = self.loop.time()
        if self.cuts_stuck_readers and self._reader_deadline is None:
            self._reader_deadline = self.loop.call_later(STUCK_READER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Note that the reader has caught up."""
        self._stuck_since = None
        self._end_reader_deadline()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Go on with the next request; where a body is still to come that nobody reads, wait a moment for its end."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            if self.timeout_keep_alive_task is not None:
                self.timeout_keep_alive_task.cancel()
                self.timeout_keep_alive_task = None
            self._linger = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, or one that is not taken, and close."""
        status, why = self.conn.refusal if isinstance(self.conn, _Head) else (400, msg)
        self._say(status, f"{why}\n".encode(), b"text/plain; charset=utf-8")
        self.transport.close()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over to WebSockets, whose application ends it unless its caller is known."""
        self.slots.leave(self)
        super().handle_websocket_upgrade(event)

    def shutdown(self) -> None:
        """Begin to leave. Nobody waits for the rest of a request that has not come whole by now."""
        super().shutdown()
        if self._body_since is not None and not self.cycle.response_started:
            self.transport.abort()

    # Slot

    @property
    def standing(self) -> Standing:
        """How the connection stands; one that takes no answer is as idle as one that asks nothing."""
        if self.idle_since == 0:
            return Standing.WORKING
        return Standing.KNOWN if self._known else Standing.STRANGE

    @property
    def idle_since(self) -> float:
        """Since when it waits for a request, for the rest of one, or for its reader; 0 where none of these."""
        if self._body_since is not None:
            return self._body_since
        if self._stuck_since is not None and self.cuts_stuck_readers:
            return self._stuck_since
        if self._header_deadline is not None:
            return self._header_deadline.when() - HEADER_SECONDS
        if self._linger is not None:
            return self._linger.when() - LINGER_SECONDS
        if self.timeout_keep_alive_task is not None:
            return self.timeout_keep_alive_task.when() - self.timeout_keep_alive
        return 0

    def give_way(self) -> None:
        """End the connection; a caller that has not had an answer learns why."""
        self.connections.discard(self)
        self.slots.leave(self)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._say(503, json.dumps({"error": _BUSY.as_json()}).encode(), b"application/json")
        # What is written has left at once, or does not leave.
        self.transport.abort()

    def _say(self, status: int, body: bytes, kind: bytes) -> None:
        head = f"HTTP/1.1 {status} Refused\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        self.transport.write(head.encode() + b"Content-Type: " + kind + b"\r\n\r\n" + body)

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


def mark_known(scope_state: object) -> None:
    """Tell a connection, by ``scope["state"]`` of a request on it, that its caller has shown who it is."""
    known: Callable[[], None] | None = scope_state.get(KNOWN_KEY) if isinstance(scope_state, dict) else None
    if known is not None:
        known()
