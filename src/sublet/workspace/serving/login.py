"""One SSH connection: who may log in, and all that is refused (DESIGN 4.6)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, cast

import asyncssh

from sublet.workspace.serving.archive_session import ArchiveSession
from sublet.workspace.serving.served_lease import ServedLease
from sublet.workspace.sftp.session import SftpSession
from sublet.workspace.ssh.channel_session import ChannelSession
from sublet.workspace.ssh.tuning import tune

LOGIN_SECONDS: Final = 15
MAX_LOGIN_ATTEMPTS: Final = 6
CHANNEL_WINDOW: Final = 2 * 1024 * 1024
CHANNEL_PACKET: Final = 128 * 1024
"""What a client may put in one packet: two of sshfs's writes."""
MAX_BLOCKED_INPUT: Final = 16 * 1024 * 1024
"""Bytes that a connection may send while its requests wait: all windows full, and what frames them."""
CIPHERS: Final = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""The only ones offered: fastest by far, and authenticated."""

_log = logging.getLogger(__name__)

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
        find: returns the lease of a user name.
        decided: waits until it is certain whether there is a lease of a user name; by default that it is.
        only: the one user that may log in, for a connection that we dialled for a certain lease.
    """

    def __init__(
        self, find: FindLease, decided: Callable[[str], Awaitable[None]] | None = None, *, only: str | None = None
    ) -> None:
        self._find = find
        self._decided = decided
        self._only = only
        self._attempts = 0
        self._connection: asyncssh.SSHServerConnection | None = None
        self._lease: ServedLease | None = None
        self._sessions: set[ChannelSession] = set()
        self._full = False
        self._severed = False
        self._blocked_input = 0

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
        receive = transported.data_received
        counted = False

        def data_received(data: bytes) -> None:
            if counted or self._admits_input(len(data)):
                receive(data)
                self._cut_if_excessive()

        transported.data_received = data_received
        transported.pause_writing = self._pause
        transported.resume_writing = self._resume
        counted = tune(conn, self._admits_input)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._drop_sessions()
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
        lease.join(self)

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], ChannelSession] | bool:
        """Open a channel for what the lease is served by, up to the lease's number per connection."""
        lease, connection = self._lease, self._connection
        if lease is None or connection is None or not lease.is_live():
            return False
        if len(self._sessions) >= lease.export.limits.max_channels:
            return False
        session: ChannelSession
        if lease.export.transport == "sshfs":
            session = SftpSession(lease.new_session(), self._is_stalled, self._sessions.discard, held=self._full)
        else:
            session = ArchiveSession(lease.transfers, self._is_stalled, self._sessions.discard, held=self._full)
        self._sessions.add(session)
        channel = connection.create_server_channel(encoding=None, window=CHANNEL_WINDOW, max_pktsize=CHANNEL_PACKET)
        return channel, session

    # served_lease.Severable

    def sever(self) -> None:
        """Cut the connection: handles are closed and nothing is answered when this returns. Idempotent."""
        self._severed = True
        self._drop_sessions()
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

    def _admits_input(self, size: int) -> bool:
        """Count what arrives while requests wait, and cut a client that pours on regardless."""
        blocked = self._full
        for session in self._sessions:
            blocked = blocked or session.is_blocked
        if not blocked:
            self._blocked_input = 0
            return True
        self._blocked_input += size
        if self._blocked_input <= MAX_BLOCKED_INPUT:
            return True
        _log.warning("a connection was cut: its client sends without end and does not read")
        self.sever()
        return False

    def _cut_if_excessive(self) -> None:
        if any(session.is_excessive for session in self._sessions):
            _log.warning("a connection was cut: its client sets variables without end")
            self.sever()

    def _is_stalled(self) -> bool:
        # During a key exchange asyncssh queues packets without bound and tells nobody, so we have to look. Without
        # the attribute, the test that never finishes a key exchange fails.
        return bool(getattr(self._connection, "_deferred_packets", ()))

    def _pause(self) -> None:
        self._full = True
        for session in self._sessions:
            session.hold()

    def _resume(self) -> None:
        self._full = False
        for session in self._sessions:
            session.go_on()
