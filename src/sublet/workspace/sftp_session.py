"""One SFTP channel of a connection: frames are parsed where the data arrives, and flow control is our own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import asyncssh

from sublet.workspace.sftp_core import ProtocolAbort, SftpCore
from sublet.workspace.sftp_reply import SlowReply
from sublet.workspace.ssh_tuning import ChannelPort, port_of

MAX_UNSENT_BYTES: Final = 512 * 1024
"""Replies that wait for the client's window before its requests wait, too."""
MAX_ENVIRONMENT: Final = 16
"""Variables that a client may set; nobody reads them, but asyncssh keeps them."""
_WRITE_BATCH: Final = 32 * 1024
_RETRY_SECONDS: Final = 0.005

_log = logging.getLogger(__name__)


class SftpSession(asyncssh.SSHServerSession[bytes]):
    """Serves SFTP and nothing else on one channel.

    A request is answered right where its bytes arrive: no task, no stream and no thread per packet, which is what
    makes the data plane as fast as it is. What takes long (fsync) leaves the loop, and later requests wait for it.

    Nothing is read while answers pile up. SSH's own window does not see to that: a client may open one of 4 GiB and
    never read, so the connection tells us when its socket is full (``hold`` and ``go_on``).

    Args:
        core: the session's protocol.
        is_stalled: tells whether packets of the connection wait for a key exchange.
        on_end: called once when the channel has ended.
    """

    def __init__(
        self, core: SftpCore, is_stalled: Callable[[], bool], on_end: Callable[[SftpSession], None], *, held: bool
    ) -> None:
        self._core = core
        self._is_stalled = is_stalled
        self._on_end = on_end
        self._channel: asyncssh.SSHServerChannel[bytes] | None = None
        self._port: ChannelPort | None = None
        self._loop = asyncio.get_running_loop()
        self._started = False
        self._ended = False
        self._connection_full = held
        self._channel_full = False
        self._waiting = False  # for a slow reply or for a key exchange
        self.is_blocked = held
        """Whether requests have to wait, for any of these reasons."""

    # asyncssh.SSHServerSession

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """Take the channel."""
        self._channel = chan
        self._port = port_of(chan)
        chan.set_write_buffer_limits(MAX_UNSENT_BYTES)

    def pty_requested(self, term_type: str, term_size: tuple[int, int, int, int], term_modes: object) -> bool:
        """Refuse a terminal."""
        return False

    def shell_requested(self) -> bool:
        """Refuse a shell."""
        return False

    def exec_requested(self, command: str) -> bool:
        """Refuse a command."""
        return False

    def subsystem_requested(self, subsystem: str) -> bool:
        """Accept ``sftp``, once."""
        if subsystem != "sftp" or self._started or self._ended:
            return False
        self._started = True
        return True

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Answer the requests that are complete."""
        if not self._started or self._ended:
            return
        self._core.receive(data)
        self._pump()

    def eof_received(self) -> bool:
        """End the channel: sshfs leaves it half open when it unmounts, and its ssh would wait for us for ever."""
        self._loop.call_soon(self._exit)
        return True

    def pause_writing(self) -> None:
        """Hold: the client's window is full."""
        self._channel_full = self.is_blocked = True

    def resume_writing(self) -> None:
        """Go on: the client's window has room."""
        self._channel_full = False
        self._unblock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close what the client left open."""
        self.sever()
        self._on_end(self)

    # the connection's side

    def hold(self) -> None:
        """Stop answering: the connection's socket is full."""
        self._connection_full = self.is_blocked = True

    def go_on(self) -> None:
        """Answer again: the connection's socket has room."""
        self._connection_full = False
        self._unblock()

    @property
    def is_excessive(self) -> bool:
        """Whether the client makes us keep what nobody asked for."""
        return self._channel is not None and len(self._channel.get_environment_bytes()) > MAX_ENVIRONMENT

    def sever(self) -> None:
        """Close all handles and answer nothing any more. Idempotent."""
        if not self._ended:
            self._ended = True
            self._core.close()

    # the pump

    def _pump(self) -> None:
        out: list[bytes] = []
        size = 0
        try:
            while not self.is_blocked and not self._ended:
                reply = self._core.next_reply()
                if reply is None:
                    break
                if isinstance(reply, SlowReply):
                    self._send(out)
                    self._run_slowly(reply)
                    break
                out.append(reply)
                size += len(reply)
                if size >= _WRITE_BATCH:
                    self._send(out)
                    size = 0
        except ProtocolAbort as exc:
            _log.info("an SFTP channel was closed: %s", exc)
            self._abort()
            return
        self._send(out)
        if self.is_blocked and self._channel is not None and not self._ended:
            self._channel.pause_reading()

    def _send(self, out: list[bytes]) -> None:
        """Write and empty ``out``; may block the session."""
        if not out or self._port is None or self._channel is None or self._channel.is_closing():
            out.clear()
            return
        self._port.write(b"".join(out))
        out.clear()
        if self._is_stalled() and not self._waiting:
            self._wait()
            self._loop.call_later(_RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        if not self._ended and self._is_stalled():
            self._loop.call_later(_RETRY_SECONDS, self._retry)
            return
        self._waiting = False
        self._unblock()

    def _run_slowly(self, reply: SlowReply) -> None:
        self._wait()
        self._loop.run_in_executor(None, reply.run).add_done_callback(self._finished)

    def _finished(self, done: asyncio.Future[bytes]) -> None:
        self._waiting = False
        if not done.cancelled():
            self._send([done.result()])
        self._unblock()

    def _wait(self) -> None:
        self._waiting = self.is_blocked = True

    def _unblock(self) -> None:
        self.is_blocked = self._connection_full or self._channel_full or self._waiting
        if not self.is_blocked:
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._ended or self._channel is None or self.is_blocked:
            return
        self._channel.resume_reading()
        self._pump()

    def _exit(self) -> None:
        if self._channel is not None and not self._channel.is_closing():
            self._channel.exit(0)

    def _abort(self) -> None:
        self.sever()
        if self._channel is not None:
            self._channel.abort()
