"""What asyncssh keeps for a peer and tells nobody, read for our bounds on it (``ssh.lane`` has other parts).

asyncssh has no public way to learn any of it. Where another version lacks a part, its bound is not held: a login or a
transfer works all the same, what a peer can send is still bounded by the windows of its channels, and
``sublet doctor`` says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Any, Final, cast

import asyncssh
from asyncssh.channel import SSHChannel

MSG_CHANNEL_WINDOW_ADJUST: Final = 93
"""RFC 4254, section 5.2."""
CONNECTION_PARTS: Final = ("_deferred_packets", "_global_request_queue", "_transport")
CHANNEL_PARTS: Final = ("_init_recv_window", "_recv_buf", "_recv_window", "_request_queue", "_send_pktsize")


def transport_of(connection: asyncssh.SSHServerConnection) -> asyncio.Transport | None:
    """Return what the connection reads from; None where it has closed, or can't be told."""
    return cast("asyncio.Transport | None", getattr(connection, "_transport", None))


def deferred_packets(connection: asyncssh.SSHServerConnection | None) -> int:
    """Return how many packets wait for the end of a key exchange."""
    return _size(connection, "_deferred_packets")


def global_requests(connection: asyncssh.SSHServerConnection | None) -> int:
    """Return how many requests about the connection wait."""
    return _size(connection, "_global_request_queue")


def unread_pieces(channel: SSHChannel[bytes]) -> int:
    """Return how many pieces of data wait for the session."""
    return _size(channel, "_recv_buf")


def channel_requests(channel: SSHChannel[bytes]) -> int:
    """Return how many requests about the channel wait."""
    return _size(channel, "_request_queue")


def packet_bytes(channel: SSHChannel[bytes], unknown: int) -> int:
    """Return the largest packet that the peer takes; ``unknown`` where it can't be told."""
    size: int = getattr(channel, "_send_pktsize", unknown)
    return size


def steer_window(channel: SSHChannel[bytes]) -> bool:
    """Keep asyncssh from opening the channel's window by itself; False where it can't be kept from it."""
    inner = cast("Any", channel)
    if not (hasattr(inner, "_init_recv_window") and hasattr(inner, "_recv_window")):
        return False
    inner._init_recv_window = 0  # below which asyncssh opens it: never
    return True


def open_window(channel: SSHChannel[bytes], room: int) -> None:
    """Let the peer send ``room`` bytes more on a channel whose window is steered."""
    inner = cast("Any", channel)
    inner._recv_window += room
    inner.send_packet(MSG_CHANNEL_WINDOW_ADJUST, room.to_bytes(4, "big"))


def missing() -> list[str]:
    """Return the private parts that this version of asyncssh lacks, by their names; nothing is the usual case."""
    connection = asyncssh.SSHServerConnection.__init__, asyncssh.connection.SSHConnection.__init__
    return [
        *_not_made(CONNECTION_PARTS, connection),
        *_not_made(CHANNEL_PARTS, (SSHChannel.__init__,)),
    ]


def _not_made(names: tuple[str, ...], makers: tuple[Any, ...]) -> list[str]:
    """Return the names that none of the initialisers sets: an instance can't be made without a peer."""
    made = {name for maker in makers for name in maker.__code__.co_names}
    return [name for name in names if name not in made]


def _size(thing: object, name: str) -> int:
    kept: Sized = getattr(thing, name, ())
    return len(kept)
