"""What the server of an office sends to a client, and what a client sends to it, as text frames of Socket.IO.

Engine.IO wraps it: a frame begins with the type of its packet, a message (``4``) goes on with the type of its Socket.IO
packet, the namespace and a comma, the number of its acknowledgement and JSON. Only what this protocol has a use for is
read; binary packets are known as such, so that whoever asks by one is answered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sublet.protocol.bounded_json import BadJson, parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.names import NAMESPACE, TOKEN_FIELD
from sublet.protocol.patterns import Pattern

PONG: Final = "3"
"""Answers a ping."""
LEAVING: Final = f"41{NAMESPACE},"
"""Ends a connection to the namespace."""
MAX_PARSED_BYTES: Final = 4 << 20
"""Of the JSON of one frame."""
_HEAD_CHARS: Final = 48
_MESSAGE = Pattern(r"4(?:([0-4])|5([0-9]{1,4})-)" + NAMESPACE + r"(?:,([0-9]{0,15})(?:[^0-9]|\Z)|\Z)")
_SMALLEST_PAYLOAD: Final = 1_000
_USUAL_PAYLOAD: Final = 1_000_000
_USUAL_PING: Final = 25.0
_USUAL_WAIT: Final = 20.0
_LONGEST_PING: Final = 120.0


@dataclass(frozen=True, slots=True)
class Opened:
    """The first frame: after how many seconds without a frame a server is gone, and what one frame to it may hold."""

    silence: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Ping:
    """A question whether the client is still there."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The token was taken."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The token was not taken."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The server ends the connection."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event; ``ack`` is the number under which it wants an answer, None where it wants none.

    ``readable`` is False where its arguments are binary or break a bound: there are none then.
    """

    name: str
    arguments: tuple[JsonValue, ...]
    ack: int | None
    readable: bool = True


@dataclass(frozen=True, slots=True)
class Ack:
    """The answer to the event of that number."""

    number: int
    arguments: tuple[JsonValue, ...]


@dataclass(frozen=True, slots=True)
class Nothing:
    """A frame that means nothing to a client of offices."""


Packet = Opened | Ping | Connected | Refused | Ended | Event | Ack | Nothing


class BadServerFrame(ValueError):
    """A frame that no server of an office sends."""


def read_server_frame(text: str) -> Packet:
    """Return what the frame ``text`` is.

    Raises:
        BadServerFrame: it is none.
    """
    match text[:1]:
        case "0":
            return _opened(text[1:])
        case "1":
            return Ended()
        case "2":
            return Ping()
        case "3" | "6":
            return Nothing()
        case "4":
            return _message(text)
        case _:
            raise BadServerFrame("no packet of a server")


def _opened(text: str) -> Opened:
    try:
        told = parse_json(text, max_bytes=_USUAL_PAYLOAD)
    except BadJson:
        raise BadServerFrame("it opens with no JSON") from None
    if not isinstance(told, dict):
        raise BadServerFrame("it opens with no object")
    usual = {"pingInterval": _USUAL_PING, "pingTimeout": _USUAL_WAIT}
    waits = [_number(told.get(name), seconds * 1_000) / 1_000 for name, seconds in usual.items()]
    most = int(_number(told.get("maxPayload"), _USUAL_PAYLOAD))
    return Opened(sum(min(max(one, 1.0), _LONGEST_PING) for one in waits), max(most, _SMALLEST_PAYLOAD))


def _number(value: JsonValue, otherwise: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        return otherwise
    return float(value)


def _message(text: str) -> Packet:
    match = _MESSAGE.match(text[:_HEAD_CHARS])
    if match is None:
        return Nothing()  # of another namespace, or a part of a binary packet
    kind, number = match[1], int(match[3]) if match[3] else None
    head = match.end(3) if match[3] is not None else len(text)
    if match[2] is not None:
        return Event("", (), number, readable=False)
    match kind:
        case "0":
            return Connected()
        case "1":
            return Ended()
        case "4":
            return Refused()
    try:
        values = parse_json(text[head:], max_bytes=MAX_PARSED_BYTES)
    except BadJson:
        values = None
    readable = isinstance(values, list)
    found = tuple(values) if isinstance(values, list) else ()
    if kind == "3":
        if number is None:
            raise BadServerFrame("an answer to nothing")
        return Ack(number, found)
    if not readable or not found or not isinstance(found[0], str):
        return Event("", (), number, readable=False)
    return Event(found[0], found[1:], number)


def connect_frame(token: str) -> str:
    """Return the frame that shows a token."""
    return f"40{NAMESPACE},{_json({TOKEN_FIELD: token})}"


def event_frame(event: str, data: Mapping[str, JsonValue], number: int) -> str:
    """Return the frame of an event that wants the answer ``number``."""
    return f"42{NAMESPACE},{number}{_json([event, dict(data)])}"


def ack_frame(number: int, answer: JsonValue) -> str:
    """Return the frame that answers an event; None is no argument."""
    return f"43{NAMESPACE},{number}{_json([] if answer is None else [answer])}"


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
