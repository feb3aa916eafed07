"""One channel of the archive transport on the delegator's side: frames in, frames out, work in threads (DESIGN 4.6)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, Protocol

import structlog

from sublet.protocol.errors import SubletError
from sublet.workspace.archive.download import Download
from sublet.workspace.archive.tar_format import MalformedTar
from sublet.workspace.archive.tree_pack import TreeChanged
from sublet.workspace.archive.upload import TransferOver, Upload
from sublet.workspace.archive.wire import (
    SUBSYSTEM,
    Frame,
    Frames,
    MalformedFrame,
    Report,
    data_frames,
    frame,
    pack_failure,
    pack_report,
)
from sublet.workspace.bundles.runs import Halted
from sublet.workspace.bundles.server import GitDownload, GitUpload
from sublet.workspace.ssh.channel_session import ChannelSession
from sublet.workspace.ssh.receive_window import WindowRoom
from sublet.workspace.ssh.turns import Share
from sublet.workspace.view.walk import WalkOverrunError
from sublet.workspace.viewpath import refused

log = structlog.get_logger(__name__)


_EXPECTED: Final = (OSError, MalformedFrame, MalformedTar, TransferOver, Halted, WalkOverrunError, TreeChanged)


class Transfers(Protocol):
    """Where a session's transfers come from, and who counts them: the lease. ``threads`` do their work."""

    threads: Executor

    def is_live(self) -> bool:
        """Tell whether the lease still holds."""

    def download(self) -> Download | GitDownload:
        """Begin to send the view.

        Raises:
            OSError: it can't be opened, or another transfer is under way.
        """

    def upload(self) -> Upload | GitUpload:
        """Begin to take changes.

        Raises:
            OSError: ``EROFS`` for a read-only lease, ``EBUSY`` while another transfer is under way.
        """

    def sent(self, size: int) -> None:
        """Count what was sent."""

    def received(self, size: int) -> None:
        """Count what was received."""

    def failed(self, exc: OSError) -> None:
        """Take note of a step that the system refused."""

    def returned(self, report: Report) -> None:
        """Take note that all changes have arrived."""

    def ended(self) -> None:
        """A transfer that was begun is over."""


class ArchiveSession(ChannelSession):
    """Serves one transfer and nothing else on one channel.

    Args:
        transfers: the lease.
        share: the lease's share of the loop.
        is_stalled: tells whether packets of the connection wait for a key exchange.
        on_end: called once when the channel has ended.
        held: whether the connection's socket is full now.
        room: what the channel's window may grow by, and others with it.
    """

    subsystem = SUBSYSTEM

    def __init__(
        self,
        transfers: Transfers,
        share: Share,
        is_stalled: Callable[[], bool],
        on_end: Callable[[ChannelSession], None],
        *,
        held: bool,
        room: WindowRoom,
    ) -> None:
        super().__init__(share, is_stalled, on_end, held=held, room=room, threads=transfers.threads)
        self._transfers = transfers
        self._frames = Frames()
        self._download: Download | GitDownload | None = None
        self._upload: Upload | GitUpload | None = None
        self._working = False
        self._over = False

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Take what the client sent."""
        self._received(len(data))
        if not self._started or self._ended or self._over:
            return
        self._frames.add(data)
        self._pump()

    @property
    def _kept(self) -> int:
        return self._frames.waiting

    def _close(self) -> None:
        self._frames.clear()
        transfer = self._download or self._upload
        if self._working and transfer is not None:
            transfer.halt()
        else:
            self._let_go()

    def _let_go(self) -> None:
        """Close the transfer; never while a thread is at work in it."""
        transfer, self._download, self._upload = self._download or self._upload, None, None
        if transfer is not None:
            self._transfers.ended()
            try:
                self._loop.run_in_executor(self._transfers.threads, transfer.close)
            except RuntimeError:  # the data plane is being closed, and its threads take nothing more
                transfer.close()

    def _pump(self) -> None:
        if not (self.is_blocked or self._ended or self._over):
            if not self._transfers.is_live():
                self._fail("OVER", "the lease is over")
            elif self._download is not None:
                self._work(self._send_next)
            else:
                self._next()
        self._steer_input()

    def _next(self) -> None:
        try:
            found = self._frames.next()
            if found is None:
                return
            kind, payload = found
            if self._upload is None:
                self._begin(kind)
                return
        except MalformedFrame as exc:
            self._fail("MALFORMED", str(exc))
            return
        except OSError as exc:
            self._fail(*_explain(exc))
            return
        if kind is Frame.PLAN:
            self._work(lambda: self._planned(payload))
        elif kind is Frame.GO:
            self._work(self._approve)
        elif kind is Frame.DATA:
            self._work(lambda: self._receive(payload))
        elif kind is Frame.END:
            self._work(self._finish)
        else:
            self._fail("MALFORMED", "a frame that may not come now")

    def _begin(self, kind: Frame) -> None:
        if kind is Frame.GET:
            self._download = self._transfers.download()
        elif kind is Frame.PUT:
            self._upload = self._transfers.upload()
        else:
            self._fail("MALFORMED", "a frame that may not come first")
            return
        self._loop.call_soon(self._resume)

    def _work(self, step: Callable[[], bytes]) -> None:
        """Do one step in a thread and send what it answers; what goes wrong ends the transfer."""
        self._working = True

        def safely() -> bytes:
            try:
                return step()
            except _EXPECTED as exc:
                self._over = True
                if isinstance(exc, OSError):
                    self._transfers.failed(exc)
                return pack_failure(*_explain(exc))
            except SubletError as exc:
                self._over = True
                return pack_failure("IO", exc.message)
            except Exception:
                log.exception("a transfer broke")
                self._over = True
                return pack_failure("IO", "the lender had an internal error")

        self._run_slowly(safely)

    def _after_slow(self) -> None:
        self._working = False
        if self._over or self._ended:
            self._let_go()
            self._loop.call_soon(self._exit)

    # in a thread

    def _send_next(self) -> bytes:
        assert self._download is not None
        piece = self._download.step()
        if piece is None:
            self._over = True
            return frame(Frame.END)
        self._transfers.sent(len(piece))
        return b"".join(data_frames(piece))

    def _planned(self, payload: bytes) -> bytes:
        assert self._upload is not None
        self._upload.plan(payload)
        return b""

    def _approve(self) -> bytes:
        assert self._upload is not None
        self._upload.approve()
        return frame(Frame.GO)

    def _receive(self, payload: bytes) -> bytes:
        assert self._upload is not None
        self._transfers.received(len(payload))
        self._upload.receive(payload)
        return b""

    def _finish(self) -> bytes:
        assert self._upload is not None
        report = self._upload.finish()
        self._transfers.returned(report)
        self._over = True
        return pack_report(report)

    def _fail(self, code: str, reason: str) -> None:
        self._over = True
        self._frames.clear()
        self._send([pack_failure(code, reason)])
        if not self._working:
            self._let_go()
            self._loop.call_soon(self._exit)


def _explain(exc: Exception) -> tuple[str, str]:
    if isinstance(exc, TransferOver | Halted):
        return "OVER", "the lease is over"
    if isinstance(exc, OSError):
        code = {errno.EDQUOT: "QUOTA", errno.EROFS: "READ_ONLY", errno.EBUSY: "BUSY"}.get(exc.errno or 0, "IO")
        # Only the system's words for it: the text of the error may hold a path of this machine.
        return code, str(refused(exc.errno or errno.EIO).strerror)
    return ("IO" if isinstance(exc, WalkOverrunError | TreeChanged) else "MALFORMED"), str(exc)
