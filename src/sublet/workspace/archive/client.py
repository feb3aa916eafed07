"""The executor's end of the archive transport: one channel per transfer, frames both ways, back pressure both ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final

import asyncssh

from sublet import deadlines
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.text import clean_line
from sublet.workspace.archive.wire import (
    SUBSYSTEM,
    Frame,
    Frames,
    MalformedFrame,
    Planned,
    Report,
    data_frames,
    frame,
    plan_frames,
    read_failure,
    read_report,
)
from sublet.workspace.ssh.tuning import ChannelPort, port_of

MAX_WAITING_BYTES: Final = 4 * 1024 * 1024
"""What may have arrived and wait to be written, before the delegator has to wait."""
IDLE_SECONDS: Final = 60.0
"""How long a delegator may take for its next frame; a dead link is noticed earlier."""
_WINDOW_BYTES: Final = 4 << 20
_PACKET_BYTES: Final = 128 << 10
_BUFFER_BYTES: Final = 1 << 20


class _Session(asyncssh.SSHClientSession[bytes]):
    """Keeps what has arrived until it is asked for, as bytes: tiny frames take no more than large ones."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self.channel: asyncssh.SSHClientChannel[bytes] | None = None
        self.broken = False
        self.arrived = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self._cutter = Frames()
        self._found: tuple[Frame, bytes] | None = None

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self._cutter.add(data)
        if self._cutter.waiting > MAX_WAITING_BYTES and self.channel is not None:
            self.channel.pause_reading()
        self.arrived.set()

    @property
    def has_frame(self) -> bool:
        """Whether a whole frame is there. What is none ends the session."""
        if self._found is None:
            try:
                self._found = self._cutter.next()
            except MalformedFrame:
                self._cutter.clear()
                self.broken = True
        return self._found is not None

    def take(self) -> tuple[Frame, bytes]:
        """Return the frame that is there, and read on where the delegator had to wait."""
        found, self._found = self._found, None
        assert found is not None
        assert self.channel is not None
        if self._cutter.waiting <= MAX_WAITING_BYTES:
            self.channel.resume_reading()
        return found

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.broken = True
        self.arrived.set()
        self.writable.set()
        self._on_end()


class LinkLostError(SubletError):
    """The transfer did not come to its end for the link's sake, and may be made again over another one."""

    def __init__(self, reason: str) -> None:
        lost = failed(reason)
        super().__init__(lost.code, lost.message, lost.hint)


class ArchiveChannel:
    """One transfer. Made by ``open``, ended by ``close`` or by the delegator."""

    def __init__(self, channel: asyncssh.SSHClientChannel[bytes], session: _Session) -> None:
        self._channel = channel
        self._session = session
        self._port: ChannelPort = port_of(channel)

    @classmethod
    async def open(cls, connection: asyncssh.SSHClientConnection, on_end: Callable[[], None]) -> ArchiveChannel:
        """Open a channel for one transfer.

        Args:
            connection: logged in to the delegator.
            on_end: called when the channel has ended, whoever ended it.

        Raises:
            SubletError: ``MOUNT_FAILED`` where the delegator gives none.
        """
        session = _Session(on_end)
        try:
            channel, _ = await connection.create_session(
                lambda: session,
                subsystem=SUBSYSTEM,
                encoding=None,
                env=None,
                send_env=None,
                window=_WINDOW_BYTES,
                max_pktsize=_PACKET_BYTES,
            )
        except (OSError, asyncssh.Error) as error:
            raise failed(f"the lender gives no channel for it: {clean_line(str(error), 300)}") from error
        channel.set_write_buffer_limits(high=_BUFFER_BYTES)
        session.channel = channel
        return cls(channel, session)

    def close(self) -> None:
        """End the channel at once."""
        self._channel.abort()

    async def download(self) -> AsyncGenerator[bytes]:
        """Yield the tar stream of the view, piece by piece.

        Raises:
            SubletError: ``MOUNT_FAILED`` where it ends early, with the delegator's reason.
        """
        await self._send([frame(Frame.GET)])
        while True:
            kind, payload = await self._next()
            if kind is Frame.END:
                return
            if kind is not Frame.DATA:
                raise failed("the lender answered with something else")
            yield payload

    async def plan(self, changes: Iterable[Planned]) -> None:
        """Announce changes and return once the delegator has approved them.

        Raises:
            SubletError: ``TASK_FAILED`` or ``MOUNT_FAILED`` where it refuses them, with its reason.
        """
        await self._send([frame(Frame.PUT)])
        await self._send(plan_frames(changes))
        await self._send([frame(Frame.GO)])
        kind, _ = await self._next()
        if kind is not Frame.GO:
            raise failed("the lender answered with something else")

    async def upload(self, data: bytes) -> None:
        """Send a piece of the tar stream of the changes."""
        if self._session.has_frame:
            await self._next()  # only a refusal can come now
        await self._send(data_frames(data))

    async def finish(self) -> Report:
        """Complete the changes and return what became of them.

        Raises:
            SubletError: as ``plan``.
        """
        await self._send([frame(Frame.END)])
        kind, payload = await self._next()
        if kind is not Frame.REPORT:
            raise failed("the lender answered with something else")
        try:
            return read_report(payload)
        except MalformedFrame as error:
            raise failed(str(error)) from None

    async def _send(self, frames: Iterable[bytes]) -> None:
        session = self._session
        for piece in frames:
            await self._wait_writable()
            if session.broken or self._channel.is_closing():
                if session.has_frame:
                    await self._next()
                raise LinkLostError("the link to the lender was lost")
            try:
                self._port.write(piece)
            except BrokenPipeError:
                raise LinkLostError("the link to the lender was lost") from None

    async def _wait_writable(self) -> None:
        try:
            async with deadlines.timeout(IDLE_SECONDS):
                await self._session.writable.wait()
        except TimeoutError:
            raise failed(f"the lender took nothing for {IDLE_SECONDS:.0f} s") from None

    async def _next(self) -> tuple[Frame, bytes]:
        session = self._session
        try:
            async with deadlines.timeout(IDLE_SECONDS):
                while not session.has_frame and not session.broken:
                    session.arrived.clear()
                    await session.arrived.wait()
        except TimeoutError:
            raise failed(f"the lender sent nothing for {IDLE_SECONDS:.0f} s") from None
        if not session.has_frame:
            raise LinkLostError("the link to the lender was lost")
        kind, payload = session.take()
        if kind is Frame.FAIL:
            raise _refusal(payload)
        return kind, payload


def failed(reason: str) -> SubletError:
    """Return the error of a transfer that came to nothing."""
    return SubletError(
        ErrorCode.MOUNT_FAILED,
        f"the workspace could not be transferred: {reason}",
        "Delegate again; the log of the lender's daemon says more.",
    )


def _refusal(payload: bytes) -> SubletError:
    try:
        failure = read_failure(payload)
    except MalformedFrame as error:
        return failed(str(error))
    reason = clean_line(failure.reason, 300)
    if failure.code == "BUSY":
        return LinkLostError(reason)
    if failure.code == "QUOTA":
        return SubletError(
            ErrorCode.TASK_FAILED,
            f"the changes pass what the lease may add, so none of them was taken: {reason}",
            "Ask for a lease with more room (--max-total-bytes, --max-files), or write less.",
        )
    return failed(reason)
