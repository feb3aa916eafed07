"""One link: a TLS connection to a peer and Zenoh's connection to it, and what passes from each to the other.

At most one piece is held for each way; what reads on waits until that was written, so TCP's pressure reaches whoever
sends. Nothing passes before the handshake is over and the peer's key was found among those that are pinned.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from dataclasses import dataclass, field
from typing import Final

PIECE_BYTES: Final = 64 << 10
"""Held for each way of a link."""
PIECES_A_TURN: Final = 16
"""Moved of one link before the others have their turn; TLS gives at most 16 KiB at once."""
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

Socket = socket.socket
Wait = tuple[Socket, int]


class Over(Exception):
    """The link has ended."""


@dataclass(slots=True, eq=False)
class Way:
    """Bytes on their way from one socket to the other.

    Args:
        source: read from.
        sink: written to.
    """

    source: Socket
    sink: Socket
    _piece: memoryview = field(default_factory=lambda: memoryview(bytearray(PIECE_BYTES)))
    _start: int = 0
    _end: int = 0

    def move(self) -> Wait | None:
        """Move what can be moved without waiting; return what to wait for, or None where there is more at once.

        Raises:
            Over: a side has closed, or broken.
        """
        drained = False
        for _ in range(PIECES_A_TURN):
            if self._start == self._end:
                self._start = self._end = 0
                try:
                    self._end = self.source.recv_into(self._piece)
                except (BlockingIOError, ssl.SSLWantReadError):
                    return self.source, READ
                except ssl.SSLWantWriteError:
                    return self.source, WRITE
                except OSError:
                    raise Over from None
                if self._end == 0:
                    raise Over
                drained = self._end < PIECE_BYTES and not _has_more(self.source)
            try:
                self._start += self.sink.send(self._piece[self._start : self._end])
            except (BlockingIOError, ssl.SSLWantWriteError):
                return self.sink, WRITE
            except ssl.SSLWantReadError:
                return self.sink, READ
            except OSError:
                raise Over from None
            if drained and self._start == self._end:
                return self.source, READ  # asking again would cost as much as what was moved
        return None


def _has_more(source: Socket) -> bool:
    """Tell whether there is something that was read from a connection already, of which no selector knows."""
    return isinstance(source, ssl.SSLSocket) and source.pending() > 0


@dataclass(slots=True, eq=False)
class Link:
    """A connection that may become a link.

    Args:
        raw: the connection to the other daemon.
        wanted: whose key must be shown, for one that we call; None for one that has called.
        local: Zenoh's connection, for one that we call.
        deadline: when it is closed if it is no link by then, by the clock of ``time.monotonic``.
    """

    raw: Socket
    wanted: bytes | None
    local: Socket | None
    deadline: float
    tls: ssl.SSLSocket | None = None
    peer: bytes | None = None
    """The pinned key, once it was proven."""
    home: str = ""
    """What the peer says of its home."""
    waits: dict[Socket, int] = field(default_factory=dict)
    """What is waited for, of each socket."""
    _ways: list[tuple[Way, Wait | None]] = field(default_factory=list)

    def connected(self) -> None:
        """Go on after a call: raise ``Over`` where nobody has answered."""
        if self.raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise Over

    def begin(self, context: ssl.SSLContext, *, server: bool) -> None:
        """Begin the handshake."""
        try:
            self.raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.tls = context.wrap_socket(self.raw, server_side=server, do_handshake_on_connect=False)
        except OSError:
            raise Over from None
        self.raw = self.tls

    def shake(self) -> bool:
        """Go on with the handshake; tell whether it is over."""
        assert self.tls is not None, "begun"
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self.waits = {self.tls: READ}
        except ssl.SSLWantWriteError:
            self.waits = {self.tls: WRITE}
        except OSError:
            raise Over from None
        else:
            return True
        return False

    def opened(self, peer: bytes, local: Socket) -> None:
        """Let bytes pass from now on."""
        assert self.tls is not None, "begun"
        self.peer, self.local = peer, local
        self._ways = [(Way(self.tls, local), None), (Way(local, self.tls), None)]

    def move(self, ready: dict[Socket, int]) -> bool:
        """Move what can be moved; tell whether there is more at once.

        Args:
            ready: what can be done with which socket.
        """
        more = False
        for number, (way, wait) in enumerate(self._ways):
            if wait is None or ready.get(wait[0], 0) & wait[1]:
                wait = way.move()
                self._ways[number] = way, wait
            more = more or wait is None
        self.waits = {}
        for _, wait in self._ways:
            if wait is not None:
                self.waits[wait[0]] = self.waits.get(wait[0], 0) | wait[1]
        return more

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self.raw.fileno() < 0

    def close(self) -> None:
        """Close both sides."""
        for one in (self.raw, self.local):
            if one is not None:
                one.close()
