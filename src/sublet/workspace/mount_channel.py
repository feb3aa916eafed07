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

_WINDOW_BYTES = 4 << 20
_BUFFER_BYTES = 1 << 20


class _Session(asyncssh.SSHClientSession[bytes]):
    """The channel's end: what the lender sends goes to the socket."""

    def __init__(self, closed: Callable[[], None]) -> None:
        self._closed = closed
        self.pipe: asyncio.Transport | None = None

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if self.pipe is not None and datatype is None:
            self.pipe.write(data)

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


class _Pipe(asyncio.Protocol):
    """The socket's end: what sshfs asks goes to the channel."""

    def __init__(self, channel: asyncssh.SSHClientChannel[bytes], closed: Callable[[], None]) -> None:
        self._channel = channel
        self._closed = closed

    def data_received(self, data: bytes) -> None:
        if not self._channel.is_closing():
            self._channel.write(data)

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
                lambda: session, subsystem="sftp", encoding=None, env=None, send_env=None, window=_WINDOW_BYTES
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
        pipe, _ = await loop.create_connection(lambda: _Pipe(channel, closed), sock=sock)
        pipe.set_write_buffer_limits(high=_BUFFER_BYTES)
        session.pipe = pipe
        channel.resume_reading()
        return cls(channel, pipe)

    def close(self) -> None:
        """End both sides at once."""
        self._pipe.abort()
        self._channel.close()
