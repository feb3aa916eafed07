"""One connection to the server of an office: the handshake, the pings, what is asked of us and what we ask.

It speaks over a WebSocket from the first request on, where a refusal has its body too. Nothing is followed elsewhere,
and no proxy is asked. A frame, the JSON in it, the events under way and the answers that wait all have a bound: what
breaks one ends this connection, and the next one begins after a pause.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import anyio
import structlog
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from sublet import deadlines
from sublet.office_client.guarded_socket import GuardedConnect
from sublet.protocol.bounded_json import BadJson, parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.offices.answers import TOO_MANY, flat_error, malformed
from sublet.protocol.offices.names import (
    DEFAULT_PROTOCOL_VERSION,
    SOCKET_PATH,
    VERSION_FIELD,
    VERSION_MISMATCH,
)
from sublet.protocol.offices.server_frames import (
    LEAVING,
    PONG,
    Ack,
    BadServerFrame,
    Connected,
    Ended,
    Event,
    Opened,
    Packet,
    Ping,
    Refused,
    ack_frame,
    connect_frame,
    event_frame,
    read_server_frame,
)
from sublet.protocol.text import clean_line
from sublet.turns import Turns, Turnstile

OPEN_SECONDS: Final = 10.0
"""For the handshake, and again for showing the token."""
CALL_SECONDS: Final = 20.0
"""How long the server may take to answer what we ask of it."""
CLOSE_SECONDS: Final = 0.5
MAX_FRAME_BYTES: Final = 16 << 20
MAX_BODY_BYTES: Final = 64 << 10
"""Of a refusal."""
MAX_EVENTS: Final = 128
"""Events that are being answered at one time."""
MAX_WAITING_BYTES: Final = 64 << 20
"""Of answers that the server has not read yet."""
VERSION_CLOSE_CODE: Final = 4900
"""With which a server that has no body for a refusal says that versions do not fit."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an office is.

    Args:
        url: of its server, ``http`` or ``https``, without the path of Socket.IO.
        office_id: of the office.
        certificate: the one that an ``https`` server has to show, in DER; None for one that the system trusts.
    """

    url: str
    office_id: str
    certificate: bytes | None = None


class Unreachable(Exception):
    """There is no connection now, for a reason that may pass; the text is the end of a sentence."""


class Answers(Protocol):
    """A Computer, as the connection knows it."""

    def answer(self, event: str, arguments: tuple[JsonValue, ...]) -> Coroutine[None, None, JsonValue]:
        """Return the answer to an event, within its own time limit; it does not fail."""

    def instead(self, event: str, why: str) -> JsonValue:
        """Return the answer to an event whose own answer can't be sent."""

    def unsent(self, event: str, arguments: tuple[JsonValue, ...]) -> None:
        """Take note that an answer did not leave: whoever has asked does not know what came of it."""

    def hear(self, event: str, arguments: tuple[JsonValue, ...]) -> None:
        """Take note of an event that wants no answer."""


class Link:
    """One connection whose token was taken. Made by ``open_link``; ``close`` it always."""

    def __init__(self, socket: ClientConnection, opened: Opened) -> None:
        self._socket = socket
        self._opened = opened
        self._asked: dict[int, asyncio.Future[tuple[JsonValue, ...]]] = {}
        self._numbers = count(1)
        self._waiting_bytes = 0
        self._answering = 0
        self._turnstile = Turnstile()

    async def serve(self, answers: Answers) -> str:
        """Hand on what comes until the connection ends, and return why it did."""
        turns = Turns()
        try:
            async with anyio.create_task_group() as group:
                try:
                    while True:
                        await turns.take()
                        packet = await self._next(self._opened.silence)
                        match packet:
                            case Ping():
                                await self._send(PONG)
                            case Ack(number, arguments):
                                if (waits := self._asked.pop(number, None)) is not None and not waits.done():
                                    waits.set_result(arguments)
                            case Event(name, arguments, None):
                                answers.hear(name, arguments)
                            case Event() if self._answering >= MAX_EVENTS:
                                await self._answer_at_once(packet, flat_error(TOO_MANY, "Too many requests"))
                            case Event(readable=False):
                                await self._answer_at_once(packet, malformed("it is binary, or breaks a bound"))
                            case Event():
                                self._answering += 1
                                group.start_soon(self._answer, answers, packet)
                            case Ended() | Refused():
                                return "the server has ended the connection"
                            case _:
                                pass
                finally:
                    group.cancel_scope.cancel()
        except BaseExceptionGroup as failures:
            lost, others = failures.split(Unreachable)
            if others is not None:
                raise others from None
            return str(_sole(lost))
        finally:
            for waits in self._asked.values():
                # Not cancelled: that would end whoever has asked, as if it had been told to.
                if not waits.done():
                    waits.set_exception(Unreachable("the connection has ended"))
                    waits.exception()  # also where nobody looks any more
        raise AssertionError("a connection is served until it ends")

    async def call(self, event: str, data: Mapping[str, JsonValue]) -> tuple[JsonValue, ...]:
        """Ask the server itself and return the arguments of its answer; ``serve`` has to run.

        Raises:
            Unreachable: no answer came.
        """
        number = next(self._numbers)
        waits: asyncio.Future[tuple[JsonValue, ...]] = asyncio.get_running_loop().create_future()
        self._asked[number] = waits
        try:
            async with deadlines.timeout(CALL_SECONDS):
                await self._send(event_frame(event, data, number))
                return await waits
        except TimeoutError:
            raise Unreachable(f"the server has not answered {event} in {CALL_SECONDS:g} s") from None
        finally:
            self._asked.pop(number, None)

    async def close(self) -> None:
        """End the connection, within ``CLOSE_SECONDS``."""
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            try:
                await self._socket.send(LEAVING)
                await self._socket.close()
            except (ConnectionClosed, OSError):
                pass
        self._socket.transport.abort()

    async def _answer(self, answers: Answers, event: Event) -> None:
        try:
            await self._turnstile.passed()  # a hundred that come at one moment are no one turn of the loop
            answer = await answers.answer(event.name, event.arguments)
            try:
                await self._answer_at_once(event, answer, answers)
            except BaseException:
                answers.unsent(event.name, event.arguments)
                raise
        finally:
            self._answering -= 1

    async def _answer_at_once(self, event: Event, answer: JsonValue, answers: Answers | None = None) -> None:
        if event.ack is None:
            return
        most = min(self._opened.max_bytes, MAX_FRAME_BYTES)
        try:
            text = ack_frame(event.ack, answer)
            why = f"the answer has {len(text):,} bytes, {most:,} are allowed" if len(text) > most else ""
        except (ValueError, TypeError, RecursionError):
            text, why = "", "the answer is no JSON"
        if why and answers is not None:
            text = ack_frame(event.ack, answers.instead(event.name, why))
        self._waiting_bytes += len(text)
        try:
            if self._waiting_bytes > MAX_WAITING_BYTES:
                raise Unreachable("the server does not read our answers")
            await self._send(text)
        finally:
            self._waiting_bytes -= len(text)

    async def _send(self, frame: str) -> None:
        try:
            await self._socket.send(frame)
        except (ConnectionClosed, OSError) as error:
            raise Unreachable(_closed(error)) from None

    async def _next(self, seconds: float) -> Packet:
        return await _next_packet(self._socket, seconds)


async def open_link(place: Place, token: str, version: str = DEFAULT_PROTOCOL_VERSION) -> Link:
    """Return a connection to an office's server whose token was taken; its office is not joined yet.

    Raises:
        Unreachable: it can't be reached now.
        SubletError: ``TOKEN_INVALID``; ``UNAVAILABLE`` where it speaks another version of the protocol, or is none.
    """
    socket = await _connected(place, version)
    try:
        opened = await _next_packet(socket, OPEN_SECONDS)
        if not isinstance(opened, Opened):
            raise _no_office(place)
        async with deadlines.timeout(OPEN_SECONDS):  # whatever else it says meanwhile
            return await _shown(socket, opened, token)
    except TimeoutError:
        socket.transport.abort()
        raise Unreachable(f"the server has said nothing of the token in {OPEN_SECONDS:g} s") from None
    except BaseException as error:
        socket.transport.abort()
        if isinstance(error, ConnectionClosed | OSError) and not isinstance(error, SubletError):
            raise Unreachable(_closed(error)) from None
        raise


async def _shown(socket: ClientConnection, opened: Opened, token: str) -> Link:
    await socket.send(connect_frame(token))
    while True:
        match await _next_packet(socket, OPEN_SECONDS):
            case Connected():
                return Link(socket, opened)
            case Refused():
                raise SubletError(
                    LocalCode.TOKEN_INVALID,
                    "the office does not take this token",
                    "It may have been replaced or revoked: sublet office token OFFICE --role computer --name NAME.",
                )
            case Ping():
                await socket.send(PONG)
            case Ended():
                raise Unreachable("the server has ended the connection")
            case _:
                pass


async def _connected(place: Place, version: str) -> ClientConnection:
    parts = urlsplit(place.url)
    encrypted = parts.scheme == "https"
    query = f"EIO=4&transport=websocket&{VERSION_FIELD}={quote(version)}"
    path = f"{parts.path.rstrip('/')}{SOCKET_PATH}"
    url = urlunsplit(("wss" if encrypted else "ws", parts.netloc, path, query, ""))
    try:
        async with deadlines.timeout(OPEN_SECONDS):
            socket = await GuardedConnect(
                url,
                ssl=_context(place) if encrypted else None,
                max_size=MAX_FRAME_BYTES,
                max_queue=4,
                compression=None,
                ping_interval=None,
                open_timeout=None,
                close_timeout=CLOSE_SECONDS,
                proxy=None,
            )
    except InvalidStatus as error:
        raise _refused(place, error.response.status_code, bytes(error.response.body or b"")) from None
    except ssl.SSLCertVerificationError as error:
        raise _not_trusted(place, clean_line(error.verify_message, 200)) from None
    except TimeoutError:
        raise Unreachable(f"{_host(place)} has not answered in {OPEN_SECONDS:g} s") from None
    except (OSError, InvalidHandshake, InvalidURI, EOFError, ValueError) as error:
        raise Unreachable(f"{_host(place)} can't be reached: {_words(error)}") from None
    if encrypted and place.certificate is not None:
        shown = socket.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if shown is None or not hmac.compare_digest(shown, place.certificate):
            socket.transport.abort()
            raise _not_trusted(place, "it is not the one that was given")
    return socket


def _context(place: Place) -> ssl.SSLContext:
    """Return how the server is known: by the one certificate that was given, or as the system knows others."""
    context = ssl.create_default_context()
    if place.certificate is not None:
        # Compared as a whole before the token is shown; daemons sign their own, for names that they had once.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _not_trusted(place: Place, why: str) -> SubletError:
    return SubletError(
        LocalCode.KEY_CHANGED,
        f"{_host(place)} shows a certificate that is not trusted: {why}",
        "Give all that `sublet office token --json` prints as --token-file; the certificate is in it.",
    )


def _refused(place: Place, status: int, body: bytes) -> Exception:
    """Return what a refused handshake means: for good where it says why, for now where the server is busy."""
    try:
        told = parse_json(body[: MAX_BODY_BYTES + 1], max_bytes=MAX_BODY_BYTES)
    except BadJson:
        told = None
    if isinstance(told, dict) and told.get("code") == VERSION_MISMATCH:
        return _other_version(clean_line(str(told.get("server_version", "")), 40))
    if status in (429, 500, 502, 503, 504):
        return Unreachable(f"{_host(place)} answers {status}")
    return _no_office(place, f": it answers {status}")


def _other_version(theirs: str = "") -> SubletError:
    said = f", {theirs}" if theirs else ""
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"the office speaks another version of A2C-SMCP{said}; we speak {DEFAULT_PROTOCOL_VERSION}",
        "Its server has to announce that version; of one of Sublet's, offices.protocol_version in config.json says it.",
    )


def _no_office(place: Place, why: str = "") -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"no office is served at {_host(place)}{why}",
        "Use the URL that `sublet office token --json` shows, with a slash and the office's id behind it.",
    )


async def _next_packet(socket: ClientConnection, seconds: float) -> Packet:
    """Return the next packet.

    Raises:
        Unreachable: none came, or what no server sends.
        SubletError: the server says that versions do not fit.
    """
    try:
        async with deadlines.timeout(seconds):
            frame = await socket.recv()
    except TimeoutError:
        raise Unreachable(f"the server has said nothing in {seconds:g} s") from None
    except ConnectionClosed as error:
        if error.rcvd is not None and error.rcvd.code == VERSION_CLOSE_CODE:
            raise _other_version() from None
        raise Unreachable(_closed(error)) from None
    try:
        return read_server_frame(frame) if isinstance(frame, str) else read_server_frame("6")
    except BadServerFrame as error:
        raise Unreachable(f"the server does not speak Socket.IO: {error}") from None


def _sole(failures: BaseExceptionGroup[Unreachable] | None) -> BaseException:
    one: BaseException = failures or Unreachable("it has failed")
    while isinstance(one, BaseExceptionGroup):
        one = one.exceptions[0]
    return one


def _closed(error: Exception) -> str:
    return f"the connection has ended: {_words(error)}"


def _words(error: Exception) -> str:
    return clean_line(str(error) or type(error).__name__, 200)


def _host(place: Place) -> str:
    return clean_line(urlsplit(place.url).netloc, 200)
