"""Carries bytes between an SFTP channel and the socket of ``sshfs -o passive``, with back pressure both ways.

Everything runs on the loop that serves the mount, and so nothing here may ever touch the mount.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import asyncssh

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.text import clean_line
from sublet.workspace.ssh_tuning import ChannelPort, port_of

_WINDOW_BYTES = 4 << 20
_PACKET_BYTES = 128 << 10
"""What the lender may put in one packet: two of sshfs's reads."""
_BUFFER_BYTES = 1 << 20
_READ_BYTES = 256 << 10


class _Session(asyncssh.SSHClientSession[bytes]):
    """The channel's end: what the lender sends goes to the socket."""

    def __init__(self, closed: Callable[[], None]) -> None:
        self._closed = closed
        self._arrived: list[bytes] = []
        self.pipe: asyncio.Transport | None = None
        self.port: ChannelPort | None = None

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if self.port is None or datatype is not None:
            return
        self._arrived.append(data)
        if len(self._arrived) == 1:
            self.port.at_batch_end(self._forward)

    def pause_writing(self) -> None:
        if self.pipe is not None:
            self.pipe.pause_reading()

    def resume_writing(self) -> None:
        if self.pipe is not None and not self.pipe.is_closing():
            self.pipe.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        # sshfs answers every waiting call with an error as soon as its socket ends.
        if self.pipe is not None:
            self.pipe.abort()
        self._closed()

    def _forward(self) -> None:
        # In one piece, since sshfs reads each answer in two calls and would wait between pieces.
        data = b"".join(self._arrived)
        self._arrived.clear()
        if self.pipe is not None:
            self.pipe.write(data)


class _Pipe(asyncio.BufferedProtocol):
    """The socket's end: what sshfs asks goes to the channel."""

    def __init__(
        self, channel: asyncssh.SSHClientChannel[bytes], port: ChannelPort, closed: Callable[[], None]
    ) -> None:
        self._channel = channel
        self._port = port
        self._closed = closed
        self._buffer = memoryview(bytearray(_READ_BYTES))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._channel.is_closing():
            self._port.write(self._buffer[:nbytes])

    def pause_writing(self) -> None:
        self._channel.pause_reading()

    def resume_writing(self) -> None:
        self._channel.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.close()
        self._closed()


class MountChannel:
    """An SFTP channel joined to a local socket. Made by ``open``, ended by ``close`` or by either side."""

    def __init__(self, channel: asyncssh.SSHClientChannel[bytes], pipe: asyncio.Transport) -> None:
        self._channel = channel
        self._pipe = pipe

    @classmethod
    async def open(
        cls, connection: asyncssh.SSHClientConnection, sock: socket.socket, closed: Callable[[], None]
    ) -> MountChannel:
        """Open the SFTP subsystem of ``connection`` and join it to ``sock``, which belongs to the result.

        Args:
            connection: logged in to the lender.
            sock: our end of a socket pair; the other is sshfs's.
            closed: called, perhaps twice, when either side has ended.

        Raises:
            SubletError: ``MOUNT_FAILED`` where the lender gives no such channel.
        """
        loop = asyncio.get_running_loop()
        session = _Session(closed)
        try:
            channel, _ = await connection.create_session(
                lambda: session,
                subsystem="sftp",
                encoding=None,
                env=None,
                send_env=None,
                window=_WINDOW_BYTES,
                max_pktsize=_PACKET_BYTES,
            )
        except (OSError, asyncssh.Error) as error:
            raise SubletError(
                ErrorCode.MOUNT_FAILED,
                f"the lender gives no file channel: {clean_line(str(error), 300)}",
                "The lease may be over: ask for a new one.",
            ) from error
        channel.pause_reading()
        channel.set_write_buffer_limits(high=_BUFFER_BYTES)
        sock.setblocking(False)
        port = port_of(channel)
        pipe, _ = await loop.create_connection(lambda: _Pipe(channel, port, closed), sock=sock)
        pipe.set_write_buffer_limits(high=_BUFFER_BYTES)
        session.pipe, session.port = pipe, port
        channel.resume_reading()
        return cls(channel, pipe)

    def close(self) -> None:
        """End both sides at once."""
        self._pipe.abort()
        self._channel.close()
