"""Socket.IO: the only module that knows python-socketio.

It hands on what clients send, and carries out what the rules say, in one order for all. JSON from clients goes through
our own bounded parser: the library's would build whatever comes.

Weak: the library keeps one task for each event that it handles, so ``Desk`` bounds how many there are of one member.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import anyio
import socketio
import socketio.packet
import structlog
from engineio.async_socket import AsyncSocket
from starlette.types import ASGIApp

from sublet.office_server.lines import MAX_FRAME_BYTES, Line, Lines, worked_for
from sublet.office_server.loop_time import Counted, counted
from sublet.offices.seats import Cut, Effect, Tell
from sublet.protocol.bounded_json import BadJson, parse_counted
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.names import NAMESPACE, TOKEN_FIELD
from sublet.protocol.offices.wire import wire_text, with_text

PING_SECONDS: Final = 25
PING_TIMEOUT_SECONDS: Final = 20
MAX_JSON_BYTES: Final = 4 << 20
"""Of one event or answer. A larger one is answered as malformed, and keeps its connection."""
MAX_JSON_VALUES: Final = 50_000
"""Of one event or answer, names of members among them: what is parsed keeps all others from the loop meanwhile."""
UNREADABLE: Final = "unreadable"
"""Stands for what can't be parsed, so that it is answered like any other unknown event."""
_RESERVED: Final = frozenset({"connect", "disconnect", "__disconnect_final", "*"})
"""What the library would call our handlers by, ``*`` with the arguments of a client in the place of who sends them."""
LOOK_SECONDS: Final = 1.0
LAST_WORDS_SECONDS: Final = 0.5
"""How long what was said to a connection that is cut may take to leave."""
log = structlog.get_logger(__name__)


class HearsMembers(Protocol):
    """What is told of all that clients do."""

    def connected(self, sid: str, secret: str) -> bool:
        """Tell whether a connection may stay that shows ``secret``."""

    def gone(self, sid: str) -> None:
        """Take note that a connection is over."""

    async def handle(self, sid: str, event: str, arguments: list[JsonValue]) -> JsonValue | tuple[JsonValue, ...]:
        """Return the answer to an event: a tuple is several arguments, None no argument."""


class _Json:
    """What the library parses and writes with."""

    @staticmethod
    def loads(text: str) -> JsonValue:
        """Return what ``text`` is; what breaks a bound or is no JSON becomes an event that nobody knows."""
        line = worked_for()
        with counted(None if line is None else line.pace):
            try:
                value, values = parse_counted(text, max_bytes=MAX_JSON_BYTES, values=MAX_JSON_VALUES)
            except BadJson:
                return [UNREADABLE]
            return with_text(value, text, values)

    @staticmethod
    def dumps(value: Any, **options: Any) -> str:
        """Return ``value`` as JSON; what a member has sent is passed on as it came."""
        return wire_text(value, **options) if isinstance(value, list) else json.dumps(value, **options)


class _Packet(socketio.packet.Packet):  # type: ignore[misc]  # the library has no types
    """A packet that parses within bounds; binary ones are no part of the protocol."""

    json = _Json
    uses_binary_events = False
    data: Any
    packet_type: int

    def decode(self, encoded_packet: str) -> int:
        """Parse a packet; an event or answer that is none becomes one that nobody knows.

        The library would call its own handlers for an event of their name, such as ``connect``.
        """
        attachments: int = super().decode(encoded_packet)
        event = self.packet_type == socketio.packet.EVENT
        if (event or self.packet_type == socketio.packet.ACK) and not _is_list(self.data, named=event):
            self.data = [UNREADABLE]
        return attachments


def _is_list(data: object, *, named: bool) -> bool:
    """Tell whether ``data`` are the arguments of an answer or, where ``named``, of an event that is not reserved."""
    if not isinstance(data, list):
        return False
    return not named or (bool(data) and isinstance(data[0], str) and data[0] not in _RESERVED)


class _Manager(socketio.AsyncManager):  # type: ignore[misc]  # the library has no types
    """Knows which calls wait for an answer and who is connected, and forgets what is over."""

    async def pre_connect(self, eio_sid: str, namespace: str) -> str | None:
        """Begin a connection, unless its session has ended: the library would keep it as long as it runs."""
        if eio_sid not in self.server.environ:
            return None
        sid: str | None = await super().pre_connect(eio_sid, namespace)
        return sid

    async def connect(self, sid: str, namespace: str) -> None:
        """Complete a connection, and end it where its session has ended meanwhile."""
        await super().connect(sid, namespace)
        if self.eio_sid_from_sid(sid, namespace) not in self.server.environ:
            await self.server.disconnect(sid, namespace=namespace)

    def forget(self, sid: str, callback: Callable[..., None]) -> None:
        """Forget a callback that has not been called, which the library would keep as long as the connection."""
        waiting = self.callbacks.get(sid, {})
        for number in [number for number, one in waiting.items() if one is callback]:
            del waiting[number]


class SocketIoServer:
    """Serves the namespace of offices.

    Args:
        lines: the connections as the transport sees them.
        hears: is told what clients do.
    """

    def __init__(self, lines: Lines, hears: HearsMembers) -> None:
        self._lines = lines
        self._hears = hears
        self._manager = _Manager()
        self._to_do: deque[Effect] = deque()
        self._wake = anyio.Event()
        self._one_by_one = anyio.Lock()
        quiet = logging.getLogger("sublet.offices.transport")
        # It logs what clients send, and a client may send its token.
        quiet.disabled = True
        self._sio = socketio.AsyncServer(
            async_mode="asgi",
            client_manager=self._manager,
            serializer=_Packet,
            namespaces=[NAMESPACE],
            logger=quiet,
            engineio_logger=quiet,
            cors_allowed_origins=[],
            http_compression=False,
            ping_interval=PING_SECONDS,
            ping_timeout=PING_TIMEOUT_SECONDS,
            max_http_buffer_size=MAX_FRAME_BYTES,  # what clients are told; the gate bounds each by who sends it
        )
        # Its queues have no bound, so each packet counts with the line that has to read it.
        self._hand_on, self._sio.eio.send_packet = self._sio.eio.send_packet, self._hand_over
        # A ping that is to come keeps all of a session that has ended for as long as it waits.
        self._begin, self._sio.eio.start_background_task = self._sio.eio.start_background_task, self._begin_for
        self._sio.on("connect", self._connected, namespace=NAMESPACE)
        self._sio.on("disconnect", self._gone, namespace=NAMESPACE)
        self._sio.on("*", self._event, namespace=NAMESPACE)
        self.app: ASGIApp = socketio.ASGIApp(self._sio, socketio_path="socket.io")

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Send what the rules say, after all that was to be sent before."""
        self._to_do.extend(effects)
        self._wake.set()

    async def ask(
        self, sid: str, event: str, data: Mapping[str, JsonValue], size: int, answered: Callable[..., None]
    ) -> bool:
        """Send an event of ``size`` bytes that wants an answer, with which ``answered`` is called.

        False is returned where it can't be sent.
        """
        if not self.has_room(sid, size):
            return False
        await self._sio.emit(event, data, to=sid, namespace=NAMESPACE, callback=answered)
        return True

    def forget(self, sid: str, answered: Callable[..., None]) -> None:
        """Wait no longer for an answer."""
        self._manager.forget(sid, answered)

    def count(self, sid: str, frames: int, size: int = 0) -> None:
        """Count what a connection has caused others to get, or is to get itself, as if it had sent it."""
        if (line := self._line(sid)) is not None:
            line.pace.spend(frames, size)

    def has_room(self, sid: str, size: int) -> bool:
        """Tell whether a connection reads enough for so many bytes more; where it does not, it is cut for it."""
        line = self._line(sid)
        return line is not None and line.has_room(size)

    async def serve(self) -> None:
        """Carry out effects, and look after strangers, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._carry_on)
            while True:
                await anyio.sleep(LOOK_SECONDS)
                await self._look_after()

    async def close(self) -> None:
        """Carry out what is left, and end all sessions."""
        await self._carry_out_all()
        await asyncio.sleep(0)
        for session in list(self._sio.eio.sockets):
            await self._end(session)
        await self._sio.shutdown()

    async def _carry_on(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            await self._carry_out_all()

    async def _carry_out_all(self) -> None:
        async with self._one_by_one:
            while self._to_do:
                effect = self._to_do.popleft()
                try:
                    await self._carry_out_one(effect)
                except Exception:
                    # One member's, or the library's: all others are told nevertheless.
                    log.exception("what an office has to tell could not be sent")

    async def _carry_out_one(self, effect: Effect) -> None:
        match effect:
            case Tell(sids, event, data):
                if sids:  # to nobody would be to all
                    await self._sio.emit(event, data, to=list(sids), namespace=NAMESPACE)
            case Cut(sid, why):
                log.info("a member of an office is cut off", reason=why)
                if (line := self._line(sid)) is not None:
                    asyncio.get_running_loop().call_later(LAST_WORDS_SECONDS, line.abort)
                await self._sio.disconnect(sid, namespace=NAMESPACE)

    async def _hand_over(self, session: str, packet: Any) -> None:
        """Hand a packet over, unless its connection reads too little."""
        line = self._lines.get(session)
        if line is None or line.owe(1 + len(packet.data) if isinstance(packet.data, str) else 0):
            await self._hand_on(session, packet)

    def _begin_for(self, target: Callable[..., Any], *arguments: Any) -> Any:
        """Begin what the library has to do beside, and let a line know the ping that it waits for."""
        begun = self._begin(target, *arguments)
        line, socket = worked_for(), getattr(target, "__self__", None)
        if line is not None and isinstance(socket, AsyncSocket):
            line.next_ping, line.waiting = begun, socket.queue
        return begun

    async def _look_after(self) -> None:
        for session in self._lines.overdue():
            await self._lines.turnstile.passed()
            try:
                await self._end(session)
            except Exception:
                log.exception("a connection to an office could not be ended")
        for session in self._lines.sessions():
            if session not in self._sio.eio.sockets:
                line = self._lines.get(session)
                self._lines.closed(session)
                if line is not None:
                    line.drop()

    async def _end(self, session: str) -> None:
        socket = self._sio.eio.sockets.pop(session, None)
        line = self._lines.get(session)
        self._lines.closed(session)
        try:
            if socket is not None:
                await socket.close(wait=False)
        finally:
            if line is not None:
                line.abort()
                line.drop()

    def _line(self, sid: str) -> Line | None:
        return self._lines.get(str(self._manager.eio_sid_from_sid(sid, NAMESPACE)))

    async def _connected(self, sid: str, _: object, auth: object = None) -> bool:
        secret = auth.get(TOKEN_FIELD) if isinstance(auth, dict) else None
        line = self._line(sid)
        if line is None or not isinstance(secret, str) or not self._hears.connected(sid, secret):
            return False
        # By the first of its tokens: each is a member of its own, and so is what it may send.
        line.become_known(hashlib.sha256(secret.partition(" ")[0].encode()).hexdigest())
        return True

    async def _gone(self, sid: str, *_: object) -> None:
        if (line := self._line(sid)) is not None:
            line.become_strange()
        self._hears.gone(sid)

    async def _event(self, event: object, sid: str, *arguments: JsonValue) -> JsonValue | tuple[JsonValue, ...]:
        handled = self._hears.handle(sid, event if isinstance(event, str) else UNREADABLE, list(arguments))
        line = self._line(sid)
        return await (handled if line is None else Counted(line.pace, handled))
