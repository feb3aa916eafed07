"""Joins the socket of ``sshfs -o passive`` to one SFTP channel after another, with back pressure both ways.

What passes is what the relay lets pass (``mount.relay``): without a link, sshfs is answered here. Everything runs on
the loop that serves the mount, and so nothing here may ever touch the mount.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

import asyncssh
import structlog

from sublet import deadlines
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.text import clean_line
from sublet.workspace.mount.relay import MAX_FRAME, ClientViolation, LinkState, LinkViolation, SftpRelay
from sublet.workspace.mount.stuck_reads import StuckReads
from sublet.workspace.ssh.tuning import ChannelPort, port_of

QUIET_SECONDS = 13.0
"""How long answers that are due are waited for: by then they are there, or the link is known to be lost."""
VERSION_SECONDS = 10.0
"""How long a delegator may take to say its version on a new link."""

_WINDOW_BYTES = 4 << 20
_PACKET_BYTES = 128 << 10
"""What the delegator may put in one packet: two of sshfs's reads."""
_BUFFER_BYTES = 1 << 20
_READ_BYTES = (256 << 10) + MAX_FRAME
"""What one read of the socket may bring, beside the beginning of a frame that is there already."""

_SETTLE_SECONDS = 0.01
"""What sshfs may take to pass an answer on."""

log = structlog.get_logger(__name__)


class _Link(asyncssh.SSHClientSession[bytes]):
    """One channel, for as long as it lasts: what the delegator sends goes to the relay."""

    def __init__(self, mount: MountChannel) -> None:
        self._mount = mount
        self._arrived: list[bytes] = []
        self.channel: asyncssh.SSHClientChannel[bytes] | None = None
        self.port: ChannelPort | None = None
        self.full = False
        self.ended = False

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if self.port is None or datatype is not None:
            return
        self._arrived.append(data)
        if len(self._arrived) == 1:
            self.port.at_batch_end(self._forward)

    def pause_writing(self) -> None:
        self.full = True
        self._mount.adjust()

    def resume_writing(self) -> None:
        self.full = False
        self._mount.adjust()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._mount.link_ended(self, clean_line(str(exc), 300) if exc else "the lender closed it")

    def send(self, pieces: Sequence[memoryview | bytes]) -> None:
        if self.port is None or self.channel is None or self.channel.is_closing():
            return
        for piece in pieces:
            self.port.write(piece)

    def abort(self) -> None:
        if self.channel is not None:
            self.channel.abort()

    def _forward(self) -> None:
        # In one piece, since sshfs reads each answer in two calls and would wait between pieces.
        pieces, self._arrived = self._arrived, []
        self._mount.answered(self, pieces)


class _Pipe(asyncio.BufferedProtocol):
    """The socket's end: what sshfs asks goes to the relay, frame by frame."""

    def __init__(self, mount: MountChannel) -> None:
        self._mount = mount
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._end = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        done = self._mount.asked(self._buffer[: self._end])
        if done:
            rest = self._end - done
            if rest:
                self._buffer[:rest] = self._buffer[done : self._end]
            self._end = rest

    def pause_writing(self) -> None:
        self._mount.pipe_full = True
        self._mount.adjust()

    def resume_writing(self) -> None:
        self._mount.pipe_full = False
        self._mount.adjust()

    def connection_lost(self, exc: Exception | None) -> None:
        self._mount.pipe_ended()


class MountChannel:
    """A local socket joined to SFTP channels. Made by ``open``, ended by ``close`` or by the end of the socket."""

    def __init__(self, cut: asyncio.Event, ended: Callable[[], None], top: int) -> None:
        self.cut = cut
        self.why_cut = ""
        self.pipe_full = False
        self.reads_stuck = asyncio.Event()
        """Set while a program waits for a read that can't be done, and has to be told by ``fail_reads``."""
        self._quiet = asyncio.Event()
        self._sentinel = asyncio.Event()
        self._relay = SftpRelay(top)
        self._ended = ended
        self._link: _Link | None = None
        self._opened = asyncio.Event()
        self._pipe: asyncio.Transport | None = None
        self._requests: _Pipe | None = None
        self._reading = True

    @property
    def _sentinel_is_here(self) -> bool:
        """Whether what comes now has to wait until reads were failed."""
        return self._relay.sentinel_id is not None

    @property
    def interrupted(self) -> int:
        """How many requests were answered with an error for want of a link."""
        return self._relay.interrupted

    @property
    def over_quota(self) -> bool:
        """Whether the delegator has refused a change for the quota of the lease."""
        return self._relay.over_quota

    @classmethod
    async def open(
        cls,
        connection: asyncssh.SSHClientConnection,
        sock: socket.socket,
        cut: asyncio.Event,
        ended: Callable[[], None],
        top: int = 0,
    ) -> MountChannel:
        """Open the SFTP subsystem of ``connection`` and join it to ``sock``, which belongs to the result.

        Args:
            connection: logged in to the delegator.
            sock: our end of a socket pair; the other is sshfs's.
            cut: set while there is no link; ``why_cut`` says why.
            ended: called, perhaps twice, when sshfs's side has ended, or the link has before it said its version.
            top: how many directories of the view lie above what is mounted.

        Raises:
            SubletError: ``MOUNT_FAILED`` where the delegator gives no such channel.
        """
        mount = cls(cut, ended, top)
        link = await mount._channel(connection)
        sock.setblocking(False)
        mount._link = link
        loop = asyncio.get_running_loop()
        mount._pipe, mount._requests = await loop.create_connection(lambda: _Pipe(mount), sock=sock)
        mount._pipe.set_write_buffer_limits(high=_BUFFER_BYTES)
        mount._begin(link)
        return mount

    async def rejoin(self, connection: asyncssh.SSHClientConnection) -> None:
        """Go on over ``connection`` after the link was cut; where it succeeds, ``cut`` is clear again.

        Raises:
            SubletError: ``MOUNT_FAILED`` where the delegator gives no channel, or does not say its version.
        """
        assert self.cut.is_set()
        link = await self._channel(connection)
        self._link = link
        self._opened.clear()
        self._relay.attach()
        self._begin(link)
        self._send()
        try:
            async with deadlines.timeout(VERSION_SECONDS):
                await self._opened.wait()
        except TimeoutError:
            self.link_ended(link, "the lender does not say its version")
        except BaseException:
            self.link_ended(link, "it was given up")
            raise
        if self._relay.state is not LinkState.UP:
            link.abort()
            raise _no_channel(self.why_cut)
        self.cut.clear()

    async def fail_reads(self, stuck: StuckReads) -> bool:
        """Tell programs of the reads that can't be done; other calls that come at that moment fail too.

        Returns:
            Whether that was possible.
        """
        relay, waiting = self._relay, set[int]()

        async def hush(name: bytes) -> asyncio.Event:
            relay.suspended = True
            # What the delegator is about to answer has been done, and must not fail.
            async with deadlines.timeout(QUIET_SECONDS):
                while relay.waiting:
                    self._quiet.clear()
                    await self._quiet.wait()
            await asyncio.sleep(_SETTLE_SECONDS)
            waiting.update(relay.held)
            self._sentinel.clear()
            relay.sentinel = name
            return self._sentinel

        done = False
        try:
            done = await stuck.fail(hush)
        finally:
            relay.suspended = False
            relay.release(waiting if done else set())
            self._send()
            self.adjust()
            if self._requests is not None:
                self._requests.buffer_updated(0)
        return done

    def close(self) -> None:
        """End both sides at once."""
        if self._pipe is not None:
            self._pipe.abort()
        if self._link is not None:
            self._link.abort()

    # what the two sides call

    def asked(self, frames: memoryview) -> int:
        """Take what sshfs sends and return how much of it is done with."""
        if self._sentinel_is_here:
            return 0
        try:
            done = self._relay.from_client(frames)
        except ClientViolation as error:
            log.warning("sshfs was given up", reason=str(error))
            self.close()
            return len(frames)
        self._send()
        return done

    def answered(self, link: _Link, pieces: list[bytes]) -> None:
        """Take what a delegator sends."""
        if link is not self._link:
            return
        opening = self._relay.state is LinkState.OPENING
        try:
            self._relay.from_server(pieces)
        except LinkViolation as error:
            self.link_ended(link, f"the lender does not speak SFTP: {error}")
            link.abort()
            return
        if opening and self._relay.state is LinkState.UP:
            self._opened.set()
        self._send()

    def link_ended(self, link: _Link, why: str) -> None:
        """Answer what waits for a link that is gone."""
        if link is not self._link:
            return
        self._link = None
        self.why_cut = why
        if self._relay.state is LinkState.OPENING and not self.cut.is_set():
            # sshfs waits for a version that will not come; the end of its socket tells it.
            self.close()
            self._ended()
            return
        self._relay.lose()
        self._send()
        self.cut.set()
        self._opened.set()
        self.adjust()

    def pipe_ended(self) -> None:
        """End the link too."""
        link, self._link = self._link, None
        if link is not None:
            link.abort()
        self._ended()

    def adjust(self) -> None:
        """Read from either side only while the other takes it; without a link, everything is answered here."""
        pipe, link = self._pipe, self._link
        if pipe is None or pipe.is_closing():
            return
        reading = not self.pipe_full and (link is None or not link.full) and not self._sentinel_is_here
        if reading != self._reading:
            self._reading = reading
            (pipe.resume_reading if reading else pipe.pause_reading)()
        if link is not None and link.channel is not None and not link.ended:
            (link.channel.pause_reading if self.pipe_full else link.channel.resume_reading)()

    async def _channel(self, connection: asyncssh.SSHClientConnection) -> _Link:
        link = _Link(self)
        try:
            channel, _ = await connection.create_session(
                lambda: link,
                subsystem="sftp",
                encoding=None,
                env=None,
                send_env=None,
                window=_WINDOW_BYTES,
                max_pktsize=_PACKET_BYTES,
            )
        except (OSError, asyncssh.Error) as error:
            raise _no_channel(clean_line(str(error), 300)) from error
        channel.pause_reading()
        channel.set_write_buffer_limits(high=_BUFFER_BYTES)
        link.channel = channel
        return link

    def _begin(self, link: _Link) -> None:
        assert link.channel is not None
        link.port = port_of(link.channel)
        if link.ended:
            self.link_ended(link, "the lender closed it")
            return
        self.adjust()

    def _send(self) -> None:
        """Send what the relay has collected, while the buffers that it looks into are as they were."""
        relay = self._relay
        if relay.held:
            self.reads_stuck.set()
            if self._sentinel_is_here:
                self._sentinel.set()
                self.adjust()
        else:
            self.reads_stuck.clear()
        if not relay.waiting:
            self._quiet.set()
        to_server, to_client = relay.to_server, relay.to_client
        if to_server:
            link = self._link
            if link is not None:
                link.send(to_server)
            to_server.clear()
        if to_client:
            if self._pipe is not None and not self._pipe.is_closing():
                self._pipe.write(to_client[0] if len(to_client) == 1 else b"".join(to_client))
            to_client.clear()


def _no_channel(reason: str) -> SubletError:
    return SubletError(
        ErrorCode.MOUNT_FAILED,
        f"the lender gives no file channel: {reason}",
        "The lease may be over: ask for a new one.",
    )
