"""A faster way through asyncssh for the data of open channels, and for nothing else.

A ``FastLane`` stands between a transport and its connection. It opens a packet only to see whether it is ordinary
channel data; whatever is not (key exchange, logins, window adjustments, anything malformed, forged or out of place)
goes to asyncssh exactly as it came, still sealed, which then does and says what it always does. It is the same on the
way out: data is sealed here as long as asyncssh would send it at once, and left to asyncssh otherwise. Ciphers'
counters, windows and sequence numbers stay in asyncssh's own objects, so that either may take the next packet.

What this saves is not cryptography but what surrounds it: an IGNORE packet ahead of every other, a key schedule for
every packet, a copy of all that is left for every packet read, log lines that nobody reads, and a system call for
every packet where many are sent together.

What one read brought is worked off in turns (``ssh.turns``), and nothing more is read meanwhile: a caller that sends
crumbs, or requests that take long, keeps nobody else from the loop.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

import asyncssh
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sublet.workspace.ssh.turns import Share

RECEIVE_BYTES: Final = 260 * 1024
"""What one read may bring, and the largest packet: asyncssh's own bound of 256 KiB, and some room."""
STRANGER_BYTES: Final = 16 * 1024
"""What one read may bring before the login, so that strangers cost little."""
SEND_BYTES: Final = 128 * 1024
"""What is held back at most until the packets that arrived together are answered."""

_MSG_IGNORE: Final = 2
_MSG_CHANNEL_DATA: Final = 94
_SIZE_BYTES: Final = 4
_TAG_BYTES: Final = 16
_BLOCK: Final = 16
_MIN_PADDING: Final = 4
_PACKET_HEAD: Final = struct.Struct(">BBII")
"""Padding length, message, channel and data length (RFC 4253 6, RFC 4254 5.2); the last two again:"""
_CHANNEL_HEAD: Final = struct.Struct(">II")
_NONCE: Final = struct.Struct(">IQ")
_COUNTER_MASK: Final = 0xFFFFFFFFFFFFFFFF
_SEQUENCE_MASK: Final = 0xFFFFFFFF
_KEEPALIVE_PRECISION: Final = 0.25
"""Seconds within which silence is measured; asyncssh alone makes a new timer for every read."""


class Channel(Protocol):
    """The private parts of ``asyncssh.SSHChannel`` that are used here."""

    _accept_data: Callable[[bytes], None]
    _recv_state: str
    _recv_window: int
    _send_buf: Sequence[object]
    _send_chan: int
    _send_pktsize: int
    _send_state: str
    _send_window: int
    write: Callable[[bytes], None]


class Cipher(Protocol):
    """The private parts of ``asyncssh.crypto.cipher.GCMCipher`` that are used here."""

    _iv: bytes
    _key: bytes


class Encryption(Protocol):
    """The private parts of ``asyncssh.encryption.GCMEncryption`` that are used here."""

    _cipher: Cipher


class Connection(Protocol):
    """The private parts of ``asyncssh.SSHConnection`` that are used here, and the public ones that are replaced."""

    _auth_complete: bool
    _channels: dict[int, Channel]
    _cmp_algs: Sequence[bytes]
    _enc_algs: Sequence[bytes]
    _inpbuf: bytes
    _kex_complete: bool
    _max_recv_pktlen: int
    _recv_encryption: Encryption | None
    _recv_handler: Callable[[], bool]
    _recv_pkthdr: Callable[[], bool]
    _recv_seq: int
    _rekey_bytes: int
    _rekey_bytes_sent: int
    _rekey_seconds: float
    _rekey_time: float
    _reset_keepalive_timer: Callable[[], None]
    _send: Callable[[bytes], None]
    _send_encryption: Encryption | None
    _send_seq: int
    _transport: asyncio.Transport | None
    connection_lost: Callable[[Exception | None], None]
    data_received: Callable[[bytes], None]
    eof_received: Callable[[], None]
    internal_error: Callable[[], None]
    pause_writing: Callable[[], None]
    resume_writing: Callable[[], None]
    send_packet: Callable[..., None]


class _Keyed:
    """A cipher of asyncssh's with its key expanded once."""

    __slots__ = ("aead", "cipher", "encryption")

    def __init__(self, encryption: Encryption) -> None:
        self.encryption = encryption
        self.cipher = encryption._cipher
        self.aead = AESGCM(self.cipher._key)

    def advance(self) -> None:
        """Count one packet (RFC 5647 7.1): the first four bytes of the nonce stay, the others are a counter."""
        fixed, count = _NONCE.unpack(self.cipher._iv)
        self.cipher._iv = _NONCE.pack(fixed, (count + 1) & _COUNTER_MASK)


class FastLane(asyncio.BufferedProtocol):
    """Takes over a connection's transport; made in the connection's ``connection_made``, before any packet.

    Args:
        connection: has only AES-GCM ciphers and no compression on offer.
        admits: asked with the size of all that arrives; where it says no, it has ended the connection.
        share: the caller's share of the loop.
    """

    def __init__(
        self,
        connection: asyncssh.SSHServerConnection | asyncssh.SSHClientConnection,
        admits: Callable[[int], bool],
        share: Share,
    ) -> None:
        self._connection = cast(Connection, connection)
        self._admits = admits
        self._share = share
        self._receive_stock = self._connection.data_received
        self._send_stock = self._connection.send_packet
        assert self._connection._transport is not None
        self._transport = self._connection._transport
        self._buffer = memoryview(bytearray(STRANGER_BYTES))
        self._end = 0
        self._framed = False
        self._receiving: _Keyed | None = None
        self._sending: _Keyed | None = None
        self._batching = False
        self._at_end: list[Callable[[], None]] = []
        self._heard_at = 0.0
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._padding = os.urandom(2 * _BLOCK)
        self._connection._send = self._send
        self._connection.send_packet = self._send_packet
        self._transport.set_protocol(self)

    # what sessions use

    def write(self, channel: Channel, data: bytes | memoryview) -> None:
        """Do what ``channel.write(data)`` does; ``data`` may change afterwards."""
        size = len(data)
        if channel._send_state != "open" or channel._send_buf or size > channel._send_window or not self._may_send():
            channel.write(bytes(data))
            return
        most = channel._send_pktsize
        if size <= most:
            self._seal(_CHANNEL_HEAD.pack(channel._send_chan, size), data)
        else:
            whole = memoryview(data)
            for start in range(0, size, most):
                part = whole[start : start + most]
                self._seal(_CHANNEL_HEAD.pack(channel._send_chan, len(part)), part)
        channel._send_window -= size
        if not self._batching or self._out_bytes >= SEND_BYTES:
            self._flush()

    def at_batch_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once what arrived together is all delivered: now, unless that is going on."""
        if self._batching:
            self._at_end.append(callback)
        else:
            callback()

    # asyncio.BufferedProtocol

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go: behind what there is of a packet."""
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Deliver what has come, as long as it is the caller's turn."""
        self._end += nbytes
        if not self._admits(nbytes):
            self._end = 0
            return
        now = time.monotonic()
        if now - self._heard_at > _KEEPALIVE_PRECISION:
            self._heard_at = now
            self._connection._reset_keepalive_timer()
        self.work()

    # turns.Worker

    def work(self) -> None:
        """Deliver whole packets, and send together whatever that brings to send; the rest waits for another turn."""
        self._batching = True
        self._share.begin()
        try:
            if self._deliver() and not self._share.behind:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
                self._share.ask(self)
            for callback in self._at_end:
                callback()
        except Exception:
            self._connection.internal_error()
        finally:
            self._batching = False
            self._at_end.clear()
            self._flush()
            self._share.rest()

    def eof_received(self) -> None:
        """Pass it on."""
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on, and keep nothing for a connection that is over, which asyncssh and its tasks refer to."""
        self._end = 0
        self._buffer = memoryview(b"")
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._connection.resume_writing()

    # receiving

    def _deliver(self) -> bool:
        """Deliver whole packets until the turn is over; False where some are left then."""
        connection, buffer, end, share = self._connection, self._buffer, self._end, self._share
        start, all_done = 0, True
        keyed = self._keyed_for_receiving() if self._framed else None
        while start < end and connection._transport is not None:
            if share.behind or share.is_over():
                all_done = False
                break
            if not self._framed:
                self._receive_stock(bytes(buffer[start:end]))
                if connection._auth_complete and self._at_boundary():
                    self._framed = True
                    self._buffer = memoryview(bytearray(RECEIVE_BYTES))
                start = end
                break
            if end - start < _SIZE_BYTES:
                break
            size = int.from_bytes(buffer[start : start + _SIZE_BYTES], "big")
            stop = start + _SIZE_BYTES + size + _TAG_BYTES
            if size > connection._max_recv_pktlen or stop - start > RECEIVE_BYTES:
                self._framed = False  # asyncssh refuses it, or collects it
                continue
            if stop > end:
                break
            if keyed is None or not self._take(keyed, start, stop):
                self._receive_stock(bytes(buffer[start:stop]))
                keyed = self._keyed_for_receiving()
            start = stop
        self._end = end - start if connection._transport is not None else 0
        if start and self._end:
            buffer[: self._end] = buffer[start:end]
        return all_done or not self._end

    def _take(self, keyed: _Keyed, start: int, stop: int) -> bool:
        """Take the packet if it is channel data as it should be; else leave everything untouched."""
        connection, buffer = self._connection, self._buffer
        body = start + _SIZE_BYTES
        try:
            packet = keyed.aead.decrypt(keyed.cipher._iv, buffer[body:stop], buffer[start:body])
        except InvalidTag:
            return False
        if len(packet) < _PACKET_HEAD.size:
            return False
        padding, message, number, size = _PACKET_HEAD.unpack_from(packet)
        last = _PACKET_HEAD.size + size
        if message != _MSG_CHANNEL_DATA or padding < _MIN_PADDING or last + padding != len(packet):
            return False
        channel = connection._channels.get(number)
        if channel is None or channel._recv_state != "open" or size > channel._recv_window:
            return False
        keyed.advance()
        connection._recv_seq = (connection._recv_seq + 1) & _SEQUENCE_MASK
        channel._accept_data(packet[_PACKET_HEAD.size : last])
        return True

    def _keyed_for_receiving(self) -> _Keyed | None:
        """Return the cipher of the next packet, or None while asyncssh has to take every packet itself."""
        encryption = self._connection._recv_encryption
        if encryption is None or not self._at_boundary():
            return None
        if self._receiving is None or self._receiving.encryption is not encryption:
            self._receiving = _Keyed(encryption)
        return self._receiving

    def _at_boundary(self) -> bool:
        """Tell whether asyncssh waits for the first byte of a packet, and not for a key exchange either."""
        connection = self._connection
        return not connection._inpbuf and connection._recv_handler == connection._recv_pkthdr

    # sending

    def _may_send(self) -> bool:
        """Tell whether asyncssh would send channel data now, as it is and under the keys that there are."""
        connection = self._connection
        if not (connection._kex_complete and connection._auth_complete) or connection._transport is None:
            return False
        if connection._rekey_bytes_sent >= connection._rekey_bytes:
            return False
        return not connection._rekey_seconds or time.monotonic() < connection._rekey_time

    def _send_packet(self, pkttype: int, *args: bytes, handler: object = None) -> None:
        if pkttype == _MSG_CHANNEL_DATA and self._may_send():
            self._seal(*args)
            if not self._batching or self._out_bytes >= SEND_BYTES:
                self._flush()
        elif pkttype != _MSG_IGNORE:  # which protects CBC ciphers, and those are not offered
            self._send_stock(pkttype, *args, handler=handler)

    def _seal(self, *parts: bytes | memoryview) -> None:
        """Seal one packet of channel data; ``parts`` are what follows the message's number."""
        connection = self._connection
        encryption = connection._send_encryption
        assert encryption is not None
        keyed = self._sending
        if keyed is None or keyed.encryption is not encryption:
            keyed = self._sending = _Keyed(encryption)
        size = 2 + sum(map(len, parts))
        padding = -size % _BLOCK
        if padding < _MIN_PADDING:
            padding += _BLOCK
        size += padding
        packet = b"".join((bytes((padding, _MSG_CHANNEL_DATA)), *parts, self._padding[:padding]))
        head = size.to_bytes(_SIZE_BYTES, "big")
        sealed = keyed.aead.encrypt(keyed.cipher._iv, packet, head)
        keyed.advance()
        connection._send_seq = (connection._send_seq + 1) & _SEQUENCE_MASK
        connection._rekey_bytes_sent += size
        self._out += (head, sealed)
        self._out_bytes += _SIZE_BYTES + len(sealed)

    def _send(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._batching or self._out_bytes >= SEND_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._out:
            return
        data = b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        # where asyncssh has let go of the transport, this still takes a farewell, and after its end nothing
        self._transport.write(data)
