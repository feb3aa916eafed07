"""One SSH connection: who may log in, and all that is refused (DESIGN 4.6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, cast

import asyncssh
import structlog

from sublet.workspace.byte_budget import ByteBudget
from sublet.workspace.serving.archive_session import ArchiveSession
from sublet.workspace.serving.input_feed import InputFeed
from sublet.workspace.serving.served_lease import ServedLease
from sublet.workspace.sftp.session import SftpSession
from sublet.workspace.ssh import inner
from sublet.workspace.ssh.channel_session import MAX_UNSENT_BYTES, ChannelSession
from sublet.workspace.ssh.receive_window import LEAST_WINDOW
from sublet.workspace.ssh.tuning import tune
from sublet.workspace.ssh.turns import Share

LOGIN_SECONDS: Final = 15
MAX_LOGIN_ATTEMPTS: Final = 6
CHANNEL_PACKET: Final = 128 * 1024
"""What a client may put in one packet: two of sshfs's writes."""
MAX_BLOCKED_INPUT: Final = 12 * 1024 * 1024
"""Bytes that a client may send while it reads nothing: all windows full, what frames them, and no endless questions."""
UNSENT_BYTES: Final = MAX_UNSENT_BYTES + 256 * 1024
"""What may wait for a client's reading in each channel: all before the last answer, and the last one."""
CHANNEL_BYTES: Final = LEAST_WINDOW + UNSENT_BYTES
"""What an open channel is counted for, whether it is used or not; what its window grows by is counted apart."""
MAX_UNSENT_CONTROL: Final = 1024 * 1024
"""Bytes that may wait for a client's reading besides the answers on its channels."""
MAX_STRANGER_BYTES: Final = 64 * 1024
"""Bytes that a caller may send before it has logged in; a login takes less than a tenth."""
MAX_DEFERRED_PACKETS: Final = 1024
"""Answers that may wait for the end of a key exchange besides those that wait in channels."""
MAX_GLOBAL_REQUESTS: Final = 64
"""Requests about the connection itself that may wait; all but keepalives are refused."""
CIPHERS: Final = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""The only ones offered: fastest by far, and authenticated."""
KEY_EXCHANGES: Final = ("curve25519-sha256", "curve25519-sha256@libssh.org")
"""The only ones offered: they take a millisecond. Some others that asyncssh knows take a stranger's word for a large
group, or make a key for each caller, and hold the loop for a tenth of a second."""

log = structlog.get_logger(__name__)

FindLease = Callable[[str], ServedLease | None]


class _Transported(Protocol):
    """The callbacks of ``asyncio.Protocol`` that a transport looks up on its protocol at each call."""

    data_received: Callable[[bytes], None]
    pause_writing: Callable[[], None]
    resume_writing: Callable[[], None]


class LeaseConnection(asyncssh.SSHServer):
    """The server side of one connection. It may only ask for channels of its lease's transport.

    All else keeps asyncssh's refusal.

    Args:
        share: the caller's share of the loop, which becomes that of its lease once it has logged in.
        find: returns the lease of a user name.
        decided: waits until it is certain whether there is a lease of a user name; by default that it is.
        only: the one user that may log in, for a connection that we dialled for a certain lease.
    """

    def __init__(
        self,
        share: Share,
        find: FindLease,
        decided: Callable[[str], Awaitable[None]] | None = None,
        *,
        only: str | None = None,
    ) -> None:
        self._share = share
        self._find = find
        self._decided = decided
        self._only = only
        self._attempts = 0
        self._connection: asyncssh.SSHServerConnection | None = None
        self._lease: ServedLease | None = None
        self._sessions: set[ChannelSession] = set()
        self._full = False
        self._severed = False
        self._strange_bytes = 0
        self._blocked = ByteBudget("bytes of a connection that wait", 0)
        self._channels = ByteBudget("open channels of a connection", 0)

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has logged in."""
        return self._lease is not None

    @property
    def was_made(self) -> bool:
        """Whether a transport owns the socket."""
        return self._connection is not None

    # asyncssh.SSHServer

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Take the connection and put our flow control in front of asyncssh's, which has none."""
        self._connection = conn
        if self._severed:
            conn.abort()
            return
        transported = cast(_Transported, conn)
        feed = InputFeed(transported.data_received, self._share, self._cut_if_excessive)
        transported.data_received = feed.deliver
        transported.pause_writing = self._pause
        transported.resume_writing = self._resume
        if not tune(conn, self._admits_input, self._share):
            transported.data_received = feed.receiver(conn, self._admits_input)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._drop_sessions()
        self._give_back()
        if self._lease is not None:
            self._lease.leave(self)

    async def begin_auth(self, username: str) -> bool:
        """Ask everybody to log in, once it is certain whom to let in."""
        if self._decided is not None:
            await self._decided(username)
        return True

    def password_auth_supported(self) -> bool:
        """Offer no passwords."""
        return False

    def kbdint_auth_supported(self) -> bool:
        """Offer no questions."""
        return False

    def public_key_auth_supported(self) -> bool:
        """Offer public keys."""
        return True

    def validate_ca_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Accept no certificates: asyncssh takes one without principals for anybody's."""
        return False

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Accept the key of the lease that the user name names."""
        lease = self._find_allowed(username)
        if lease is not None and lease.admits(key):
            return True
        self._attempts += 1
        if self._attempts >= MAX_LOGIN_ATTEMPTS:
            self.sever()
        return False

    def auth_completed(self) -> None:
        """Bind the connection to its lease, unless that ended or filled up since the key was checked."""
        assert self._connection is not None
        lease = self._find_allowed(self._connection.get_extra_info("username"))
        if lease is None or not lease.is_live() or not lease.has_room():
            self.sever()
            return
        self._lease = lease
        self._share.belong_to(lease.export.peer or lease.export.lease_id, lease.export.lease_id)
        self._blocked = ByteBudget("bytes sent by a client that reads nothing", MAX_BLOCKED_INPUT)
        channels = lease.export.limits.max_channels * CHANNEL_BYTES
        self._channels = ByteBudget("open channels of a connection", channels, lease.waiting)
        lease.join(self)

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], ChannelSession] | bool:
        """Open a channel for what the lease is served by, up to the lease's number per connection."""
        lease, connection = self._lease, self._connection
        if lease is None or connection is None or not lease.is_live():
            return False
        if not self._channels.take(CHANNEL_BYTES):
            return False
        session: ChannelSession
        share, stalled, on_end = self._share, self._is_stalled, self._ended
        if lease.export.transport == "sshfs":
            core = lease.new_session()
            session = SftpSession(core, share, stalled, on_end, held=self._full, room=lease.room, threads=lease.slow)
        else:
            session = ArchiveSession(lease.transfers, share, stalled, on_end, held=self._full, room=lease.room)
        self._sessions.add(session)
        channel = connection.create_server_channel(encoding=None, window=LEAST_WINDOW, max_pktsize=CHANNEL_PACKET)
        return channel, session

    # served_lease.Severable

    def sever(self) -> None:
        """Cut the connection: handles are closed and nothing is answered when this returns. Idempotent."""
        self._severed = True
        self._drop_sessions()
        self._give_back()
        if self._connection is not None:
            self._connection.abort()

    async def wait_closed(self) -> None:
        """Wait until the transport is gone."""
        if self._connection is not None:
            await self._connection.wait_closed()

    def _find_allowed(self, username: str) -> ServedLease | None:
        if self._only is not None and username != self._only:
            return None
        return self._find(username)

    def _drop_sessions(self) -> None:
        for session in self._sessions:
            session.sever()
        self._sessions.clear()

    def _ended(self, session: ChannelSession) -> None:
        if session in self._sessions:
            self._sessions.discard(session)
            self._channels.give(CHANNEL_BYTES)

    def _give_back(self) -> None:
        """Nothing is kept for the connection any more."""
        self._blocked.empty()
        self._channels.empty()

    def _admits_input(self, size: int) -> bool:
        """Count what arrives before the login, or while nothing is read, and cut a client that pours on regardless.

        What waits in channels needs no count here: their windows are counted in full, and open as it is worked off.
        """
        if self._severed:
            return False
        if self._lease is None:
            self._strange_bytes += size
            if self._strange_bytes <= MAX_STRANGER_BYTES:
                return True
            log.info("a connection was cut: its caller sends without end, and does not log in")
        elif not self._full:
            self._blocked.empty()
            if not any(session.is_held and session.is_excessive for session in self._sessions):
                return True
        elif self._blocked.take(size) and not self._keeps_too_much():
            return True
        else:
            log.warning("a connection was cut: its client sends without end and does not read")
        self.sever()
        return False

    def _keeps_too_much(self) -> bool:
        """Tell whether more waits for the client than its channels are counted for."""
        transport = None if self._connection is None else inner.transport_of(self._connection)
        unsent = 0 if transport is None else transport.get_write_buffer_size()
        return unsent > len(self._sessions) * UNSENT_BYTES + MAX_UNSENT_CONTROL or any(
            session.is_excessive for session in self._sessions
        )

    def _cut_if_excessive(self) -> None:
        # The lists are asyncssh's own, and have no other bound.
        connection = self._connection
        if (
            any(session.is_excessive for session in self._sessions)
            or inner.deferred_packets(connection) > MAX_DEFERRED_PACKETS
            or inner.global_requests(connection) > MAX_GLOBAL_REQUESTS
        ):
            log.warning("a connection was cut: its client makes us keep what nobody asked for")
            self.sever()

    def _is_stalled(self) -> bool:
        # During a key exchange asyncssh queues packets without bound and tells nobody, so we have to look.
        return bool(inner.deferred_packets(self._connection))

    def _pause(self) -> None:
        self._full = True
        for session in self._sessions:
            session.hold()

    def _resume(self) -> None:
        self._full = False
        for session in self._sessions:
            session.go_on()
