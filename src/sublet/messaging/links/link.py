"""One link: a TLS connection to a peer and Zenoh's connection to it, and what passes from each to the other.

Of what comes from a peer one piece is held, and no more is taken in a second than its share (``pace``), so TCP's
pressure reaches whoever sends. Of what goes to a peer some
mebibytes are held, since Zenoh makes whoever publishes wait while one reader takes nothing. A reader that does not
keep up with that is cut, and asks for the difference when it is back. Nothing passes before the handshake is over and
the peer's key was found among those that are pinned, and what comes from it is read by ``batches`` before Zenoh has it.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sublet.messaging.links.batches import BatchReader, Odd
from sublet.messaging.links.declared import DeclaredByPeer, DeclaredOnLink
from sublet.messaging.links.pace import MESSAGE_BYTES

PIECE_BYTES: Final = 64 << 10
"""Held for each way of a link."""
PIECES_A_TURN: Final = 16
"""Moved of one link before the others have their turn; TLS gives at most 16 KiB at once."""
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

MAX_HELD_BYTES_OF_LINK: Final = 8 << 20
"""Of what goes to a peer that takes it slower than it comes."""
MAX_HELD_BYTES: Final = 64 << 20
"""Of what goes to all of them."""
PACED_SECONDS: Final = 0.02
"""After how long some more is taken of a peer that has had its share."""
FULL_SECONDS: Final = 0.1
"""After how long a reader for which no more is held is looked at."""
STOPPED_SECONDS: Final = 0.25
"""A reader that has taken nothing for so long is cut as soon as no more can be held for it."""
SLOW_SECONDS: Final = 1.0
"""A reader for which no more can be held is cut after so long, though it takes some."""

Socket = socket.socket
Waits = dict[Socket, int]
"""What is waited for, of each socket."""


class Over(Exception):
    """The link has ended."""


class Offends(Over):
    """The peer has said what no daemon says."""


@dataclass(slots=True, eq=False)
class Way:
    """Bytes on their way from one socket to the other, of which one piece is held.

    Args:
        source: read from.
        sink: written to.
        declared: counts what passes by and declares something.
    """

    source: Socket
    sink: Socket
    declared: DeclaredOnLink
    _reader: BatchReader = field(init=False)
    _piece: memoryview = field(default_factory=lambda: memoryview(bytearray(PIECE_BYTES)))
    _start: int = 0
    _end: int = 0
    _is_paced: bool = False

    def __post_init__(self) -> None:
        self._reader = BatchReader(self.declared.take)

    @property
    def is_due(self) -> bool:
        """Whether ``move`` has to be called before long: its peer has had its share."""
        return self._is_paced

    def move(self) -> Waits | None:
        """Move what can be moved without waiting; return what to wait for, or None where there is more at once.

        Raises:
            Offends: the peer has said what no daemon says; Zenoh has none of it.
            Over: a side has closed, or broken.
        """
        drained, pace = False, self.declared.of_peer.pace
        for _ in range(PIECES_A_TURN):
            if self._start == self._end:
                self._start = self._end = 0
                self._is_paced = pace.is_spent()
                if self._is_paced:
                    return {}
                before = self._reader.messages
                read = _read(self.source, self._piece)
                if isinstance(read, dict):
                    return read
                self._end = read
                try:
                    self._reader.feed(self._piece[:read])
                except Odd as odd:
                    raise Offends(str(odd)) from None
                least = 1 if read < MESSAGE_BYTES else 0  # or many reads of little would cost nothing
                pace.spend(read, max(self._reader.messages - before, least))
                drained = self._end < PIECE_BYTES and not _has_more(self.source)
            written = _write(self.sink, self._piece[self._start : self._end])
            if isinstance(written, dict):
                return written
            self._start += written
            if drained and self._start == self._end:
                return {self.source: READ}  # asking again would cost as much as what was moved
        return None

    def close(self) -> None:
        """Hold nothing any longer."""
        self._start = self._end = 0
        self.declared.ended()


@dataclass(slots=True)
class Held:
    """Bytes that are held for readers that are slow, of all links together."""

    size: int = 0


@dataclass(slots=True, eq=False)
class HoldingWay:
    """Bytes on their way to a reader that may be slow: what it does not take is held, within bounds.

    Args:
        source: read from.
        sink: written to.
        all_held: bytes that are held for all readers.
        clock: seconds that never go back.
    """

    source: Socket
    sink: Socket
    all_held: Held
    clock: Callable[[], float] = time.monotonic
    _piece: memoryview = field(default_factory=lambda: memoryview(bytearray(PIECE_BYTES)))
    _held: deque[memoryview] = field(default_factory=deque)
    _size: int = 0
    _taken: float = 0.0
    """When the reader has taken something last, or nothing was held for it."""
    _full_since: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether ``move`` has to be called before long: no more is held for the reader."""
        return self._full_since is not None

    def move(self) -> Waits | None:
        """Move what can be moved without waiting; return what to wait for, or None where there is more at once.

        Raises:
            Over: a side has closed, or broken; or the reader takes too little.
        """
        for _ in range(PIECES_A_TURN):
            blocked = self._empty()
            if self._size >= MAX_HELD_BYTES_OF_LINK or (self._size and self.all_held.size >= MAX_HELD_BYTES):
                self._judge()
                return blocked
            if self._size < MAX_HELD_BYTES_OF_LINK // 2:
                self._full_since = None
            read = _read(self.source, self._piece)
            if isinstance(read, dict):
                return {**read, **(blocked or {})}
            drained = read < PIECE_BYTES
            if blocked is None:
                written = _write(self.sink, self._piece[:read])
                rest = self._piece[0 if isinstance(written, dict) else written : read]
            else:
                rest = self._piece[:read]
            if rest:
                self._hold(rest)
            elif drained:
                return {self.source: READ}  # asking again would cost as much as what was moved
        return None

    def close(self) -> None:
        """Hold nothing any longer."""
        self.all_held.size -= self._size
        self._size = 0
        self._held.clear()

    def _hold(self, rest: memoryview) -> None:
        if not self._held:
            self._taken = self.clock()
        self._held.append(memoryview(bytes(rest)))
        self._size += len(rest)
        self.all_held.size += len(rest)

    def _empty(self) -> Waits | None:
        """Write what is held; return what to wait for where some is left."""
        while self._held:
            written = _write(self.sink, self._held[0])
            if isinstance(written, dict):
                return written
            self._taken = self.clock()
            self._size -= written
            self.all_held.size -= written
            if written == len(self._held[0]):
                self._held.popleft()
            else:
                self._held[0] = self._held[0][written:]
        return None

    def _judge(self) -> None:
        """Raise ``Over`` for a reader that takes nothing, or too little."""
        now = self.clock()
        if self._full_since is None:
            self._full_since = now
        if now - self._taken > STOPPED_SECONDS or now - self._full_since > SLOW_SECONDS:
            raise Over


def _read(source: Socket, piece: memoryview) -> int | Waits:
    """Read what is there; return how much that is, or what to wait for.

    Raises:
        Over: the other side has closed, or broken.
    """
    try:
        read = source.recv_into(piece)
    except (BlockingIOError, ssl.SSLWantReadError):
        return {source: READ}
    except ssl.SSLWantWriteError:
        return {source: WRITE}
    except OSError:
        raise Over from None
    if read == 0:
        raise Over
    return read


def _write(sink: Socket, piece: memoryview) -> int | Waits:
    """Write what is taken at once; return how much that is, or what to wait for.

    Raises:
        Over: the other side has broken.
    """
    try:
        return sink.send(piece)
    except (BlockingIOError, ssl.SSLWantWriteError):
        return {sink: WRITE}
    except ssl.SSLWantReadError:
        return {sink: READ}
    except OSError:
        raise Over from None


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
    waits: Waits = field(default_factory=dict)
    """What is waited for, of each socket."""
    _ways: list[tuple[Way | HoldingWay, Waits | None]] = field(default_factory=list)

    def connected(self) -> None:
        """Go on after a call: raise ``Over`` where nobody has answered."""
        if self.raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise Over

    def begin(self, context: ssl.SSLContext, *, server: bool) -> None:
        """Begin the handshake."""
        try:
            self.raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.raw.getpeername()  # of a caller that is gone again, wrapping fails with the socket open
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

    def opened(self, peer: bytes, local: Socket, all_held: Held, declared: DeclaredByPeer) -> None:
        """Let bytes pass from now on.

        Args:
            peer: the pinned key.
            local: Zenoh's connection.
            all_held: counts what is held for slow readers.
            declared: counts what the peer declares.
        """
        assert self.tls is not None, "begun"
        self.peer, self.local = peer, local
        self._ways = [
            (Way(self.tls, local, DeclaredOnLink(declared)), None),
            (HoldingWay(local, self.tls, all_held), None),
        ]

    @property
    def look_seconds(self) -> float | None:
        """After how long it has to be looked at, though nothing is ready; None where that is not so.

        Its peer has had its share of what is taken, or takes less than comes for it.
        """
        due = [way for way, _ in self._ways if way.is_due]
        if not due:
            return None
        return PACED_SECONDS if any(isinstance(way, Way) for way in due) else FULL_SECONDS

    def move(self, ready: dict[Socket, int]) -> bool:
        """Move what can be moved; tell whether there is more at once.

        Args:
            ready: what can be done with which socket.
        """
        more = False
        for number, (way, waits) in enumerate(self._ways):
            if waits is None or way.is_due or any(ready.get(one, 0) & event for one, event in waits.items()):
                waits = way.move()
                self._ways[number] = way, waits
            more = more or waits is None
        self.waits = {}
        for _, waits in self._ways:
            for one, event in (waits or {}).items():
                self.waits[one] = self.waits.get(one, 0) | event
        return more

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self.raw.fileno() < 0

    def close(self) -> None:
        """Close both sides."""
        for way, _ in self._ways:
            way.close()
        for one in (self.raw, self.local):
            if one is not None:
                one.close()
