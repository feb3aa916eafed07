"""Hands what a caller sends to asyncssh in small pieces, where nothing faster does it (``ssh.tuning``).

asyncssh works off whatever it is given before it returns, and copies all the rest for every packet. So it is given
little at once, and only while it is the caller's turn; nothing more is read from the caller meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import asyncssh

from sublet.workspace.ssh.inner import transport_of
from sublet.workspace.ssh.turns import Share

PIECE_BYTES: Final = 16 * 1024


class InputFeed:
    """The input of one connection; a ``turns.Worker``.

    Args:
        receive: asyncssh's own ``data_received``.
        share: the caller's share of the loop.
        check: called after each piece, to look at what asyncssh keeps of it.
    """

    def __init__(
        self,
        receive: Callable[[bytes], None],
        share: Share,
        check: Callable[[], None],
    ) -> None:
        self._receive = receive
        self._share = share
        self._check = check
        self._transport: asyncio.Transport | None = None
        self._waiting = memoryview(b"")

    def deliver(self, data: bytes) -> None:
        """Deliver ``data`` now."""
        self._receive(data)
        self._check()

    def receiver(
        self, connection: asyncssh.SSHServerConnection, admits: Callable[[int], bool]
    ) -> Callable[[bytes], None]:
        """Return what takes the place of the connection's ``data_received``.

        Args:
            connection: has a transport.
            admits: asked with the size of all that arrives; where it says no, it has ended the connection.
        """
        self._transport = transport_of(connection)

        def received(data: bytes) -> None:
            if admits(len(data)):
                self._waiting = memoryview(b"".join((self._waiting, data)))
                self.work()

        return received

    def work(self) -> None:
        """Deliver pieces as long as it is the caller's turn."""
        transport = self._transport
        self._share.begin()
        while self._waiting:
            if transport is not None and transport.is_closing():
                self._waiting = memoryview(b"")
                return
            if self._share.behind or self._share.is_over():
                if transport is not None:  # without it (``ssh.inner``) what comes meanwhile waits here
                    transport.pause_reading()
                self._share.ask(self)
                return
            piece, self._waiting = self._waiting[:PIECE_BYTES], self._waiting[PIECE_BYTES:]
            self.deliver(bytes(piece))
        if transport is not None:
            transport.resume_reading()
