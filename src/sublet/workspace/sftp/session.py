"""One SFTP channel of a connection: frames are parsed where the data arrives, and flow control is our own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from sublet.workspace.sftp.core import ProtocolAbort, SftpCore
from sublet.workspace.sftp.reply import SlowReply
from sublet.workspace.ssh.channel_session import ChannelSession

_WRITE_BATCH: Final = 32 * 1024

_log = logging.getLogger(__name__)


class SftpSession(ChannelSession):
    """Serves SFTP and nothing else on one channel.

    A request is answered right where its bytes arrive: no task, no stream and no thread per packet, which is what
    makes the data plane as fast as it is. What takes long (fsync) leaves the loop, and later requests wait for it.

    Args:
        core: the session's protocol.
        is_stalled: tells whether packets of the connection wait for a key exchange.
        on_end: called once when the channel has ended.
        held: whether the connection's socket is full now.
    """

    subsystem = "sftp"

    def __init__(
        self, core: SftpCore, is_stalled: Callable[[], bool], on_end: Callable[[ChannelSession], None], *, held: bool
    ) -> None:
        super().__init__(is_stalled, on_end, held=held)
        self._core = core

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Answer the requests that are complete."""
        if not self._started or self._ended:
            return
        self._core.receive(data)
        self._pump()

    def _close(self) -> None:
        self._core.close()

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
                    self._run_slowly(reply.run, reply.finish)
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
        self._pause_input()
