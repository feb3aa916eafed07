"""Which text frames of Engine.IO a client may send, told from their first characters before anything is parsed.

A frame begins with the type of its Engine.IO packet. A message (``4``) goes on with the type of its Socket.IO packet,
the namespace and a comma, the number of its acknowledgement and JSON. Binary packets, other namespaces and types that
only servers send are refused: the protocol of offices has no use for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sublet.protocol.offices.names import NAMESPACE
from sublet.protocol.patterns import Pattern

_MESSAGE = Pattern(r"4([0-3])" + NAMESPACE + r"(?:,([0-9]{0,15})(?:[^0-9]|\Z)|\Z)")
_WITHOUT_MESSAGE: Final = frozenset({"1", "2", "2probe", "3", "3probe", "5"})
_HEAD_CHARS: Final = 32


class Kind(Enum):
    """What a frame is, as far as its first characters tell."""

    TRANSPORT = "transport"
    CONNECT = "connect"
    DISCONNECT = "disconnect"
    EVENT = "event"
    ACK = "ack"


@dataclass(frozen=True, slots=True)
class Frame:
    """The kind of a frame, with the number of the acknowledgement that it wants or is."""

    kind: Kind
    ack: int | None = None


class BadFrame(ValueError):
    """A frame that no client of an office sends."""


_KINDS: Final = {"0": Kind.CONNECT, "1": Kind.DISCONNECT, "2": Kind.EVENT, "3": Kind.ACK}


def read_frame(text: str) -> Frame:
    """Return what the frame ``text`` is.

    Raises:
        BadFrame: it is refused.
    """
    if text[:1] != "4":
        if text in _WITHOUT_MESSAGE:
            return Frame(Kind.TRANSPORT)
        raise BadFrame("no packet of a client")
    match = _MESSAGE.match(text[:_HEAD_CHARS])
    if match is None:
        raise BadFrame("no packet of this namespace")
    return Frame(_KINDS[match[1]], int(match[2]) if match[2] else None)
