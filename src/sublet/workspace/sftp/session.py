"""One SFTP channel of a connection: frames are parsed where the data arrives, and flow control is our own."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Executor
from typing import Final

import structlog

from sublet.workspace.sftp.core import ProtocolAbort, SftpCore
from sublet.workspace.sftp.reply import Reply, SlowReply, SteppedReply
from sublet.workspace.ssh.channel_session import ChannelSession
from sublet.workspace.ssh.receive_window import WindowRoom
from sublet.workspace.ssh.turns import Share

_WRITE_BATCH: Final = 32 * 1024

log = structlog.get_logger(__name__)


class SftpSession(ChannelSession):
    """Serves SFTP and nothing else on one channel.

    A request is answered right where its bytes arrive: no task, no stream and no thread per packet, which is what
    makes the data plane as fast as it is. What takes long in the kernel (fsync) leaves the loop, and what takes many
    steps is done step by step; later requests wait for it.

    Args:
        core: the session's protocol.
        share: the lease's share of the loop.
        is_stalled: tells whether packets of the connection wait for a key exchange.
        on_end: called once when the channel has ended.
        held: whether the connection's socket is full now.
        room: what the channel's window may grow by, and others with it.
        threads: where what takes long in the kernel is done.
    """

    subsystem = "sftp"

    def __init__(
        self,
        core: SftpCore,
        share: Share,
        is_stalled: Callable[[], bool],
        on_end: Callable[[ChannelSession], None],
        *,
        held: bool,
        room: WindowRoom,
        threads: Executor | None = None,
    ) -> None:
        super().__init__(share, is_stalled, on_end, held=held, room=room, threads=threads)
        self._core = core
        self._steps: Generator[None, None, bytes | SlowReply] | None = None

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Answer the requests that are complete."""
        self._received(len(data))
        if not self._started or self._ended:
            return
        self._core.receive(data)
        self._pump()

    @property
    def _kept(self) -> int:
        return self._core.waiting

    def _close(self) -> None:
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        self._core.close()

    def _pump(self) -> None:
        out: list[bytes] = []
        size = 0
        self._share.begin()
        try:
            while not self.is_blocked and not self._ended:
                if self._steps is None and not self._core.has_request():
                    break
                if not self._take_turns():
                    break
                reply = self._next()
                if reply is None:
                    continue
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
            log.info("an SFTP channel was closed", reason=str(exc))
            self._abort()
            return
        self._send(out)
        self._steer_input()

    def _next(self) -> bytes | SlowReply | None:
        """Do the next request, or the next step of the one under way; None where more steps follow."""
        steps = self._steps
        if steps is None:
            reply: Reply = self._core.reply()
            if not isinstance(reply, SteppedReply):
                return reply
            steps = self._steps = reply.steps
        try:
            next(steps)
        except StopIteration as end:
            self._steps = None
            answer: bytes | SlowReply = end.value
            return answer
        return None
