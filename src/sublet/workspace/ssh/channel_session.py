"""One channel of a connection that serves one subsystem, with flow control of our own."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final

import asyncssh

from sublet.workspace.ssh.inner import channel_requests, packet_bytes, unread_pieces
from sublet.workspace.ssh.receive_window import ReceiveWindow, WindowRoom
from sublet.workspace.ssh.tuning import ChannelPort, port_of
from sublet.workspace.ssh.turns import Share

MAX_UNSENT_BYTES: Final = 64 * 1024
"""Replies that wait for the client's window before its requests wait, too."""
MAX_ENVIRONMENT: Final = 16
"""Variables that a client may set; nobody reads them, but asyncssh keeps them."""
MAX_ENVIRONMENT_BYTES: Final = 4096
"""Names and values of all of them."""
MAX_PIECES: Final = 4096
"""Pieces of input that may wait: asyncssh keeps an object for each, and moves all of them to take one."""
MAX_REQUESTS: Final = 64
"""Requests about one channel that may wait; a client sends one or two."""
MIN_PACKET_BYTES: Final = 1024
"""The least that a client has to take in one packet: an answer in packets of one byte would take seconds."""
_RETRY_SECONDS: Final = 0.005


class ChannelSession(asyncssh.SSHServerSession[bytes], ABC):
    """Serves one subsystem and nothing else on one channel.

    Nothing is read while answers pile up. SSH's own window does not see to that: a client may open one of 4 GiB and
    never read, so the connection tells us when its socket is full (``hold`` and ``go_on``). What takes long leaves the
    loop, and what comes later waits for it. Requests are worked off in turns, so that a client that has sent many
    keeps nobody else from the loop.

    Args:
        share: the lease's share of the loop.
        is_stalled: tells whether packets of the connection wait for a key exchange.
        on_end: called once when the channel has ended.
        held: whether the connection's socket is full now.
        room: what the channel's window may grow by, and others with it.
        threads: where what takes long is done; by default with all else that the loop has done in threads.
    """

    subsystem: str

    def __init__(
        self,
        share: Share,
        is_stalled: Callable[[], bool],
        on_end: Callable[[ChannelSession], None],
        *,
        held: bool,
        room: WindowRoom,
        threads: Executor | None = None,
    ) -> None:
        self._share = share
        self._is_stalled = is_stalled
        self._on_end = on_end
        self._channel: asyncssh.SSHServerChannel[bytes] | None = None
        self._port: ChannelPort | None = None
        self._room = room
        self._window: ReceiveWindow | None = None
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._started = False
        self._ended = False
        self._connection_full = held
        self._channel_full = False
        self._waiting = False  # for what takes long or for a key exchange
        self.is_behind = False
        """Whether requests wait for a turn."""
        self.is_blocked = held
        """Whether requests have to wait, for any of these reasons."""

    @abstractmethod
    def _pump(self) -> None:
        """Go on with what has arrived, as long as nothing blocks."""

    @property
    @abstractmethod
    def _kept(self) -> int:
        """How many bytes have arrived and are not worked off."""

    @abstractmethod
    def _close(self) -> None:
        """Let go of everything; called once."""

    def _after_slow(self) -> None:
        """Take note that what ran in a thread is done, and its answer sent."""

    # asyncssh.SSHServerSession

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """Take the channel."""
        self._channel = chan
        self._port = port_of(chan)
        self._window = ReceiveWindow(chan, self._room)
        chan.set_write_buffer_limits(MAX_UNSENT_BYTES)
        if packet_bytes(chan, MIN_PACKET_BYTES) < MIN_PACKET_BYTES:
            self._loop.call_soon(self._abort)

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
        """Accept the one subsystem, once."""
        if subsystem != self.subsystem or self._started or self._ended:
            return False
        self._started = True
        return True

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
    def is_held(self) -> bool:
        """Whether requests wait for something else than a turn."""
        return self._connection_full or self._channel_full or self._waiting

    @property
    def is_excessive(self) -> bool:
        """Whether the client makes us keep what nobody asked for."""
        channel = self._channel
        if channel is None:
            return False
        variables = channel.get_environment_bytes()
        return (
            len(variables) > MAX_ENVIRONMENT
            or sum(len(name) + len(value) for name, value in variables.items()) > MAX_ENVIRONMENT_BYTES
            or unread_pieces(channel) > MAX_PIECES
            or channel_requests(channel) > MAX_REQUESTS
        )

    def sever(self) -> None:
        """Let go of everything and answer nothing any more. Idempotent."""
        if not self._ended:
            self._ended = True
            self._catch_up()
            if self._window is not None:
                self._window.close()
            self._close()

    # turns.Worker

    def work(self) -> None:
        """Go on: it is this session's turn."""
        self._catch_up()
        self.is_blocked = self.is_held
        self._resume()

    # what the subsystems use

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

    def _run_slowly(self, work: Callable[[], bytes], finish: Callable[[], bytes] | None = None) -> None:
        """Send what ``work`` returns, which runs in a thread; until then nothing else is done.

        Where it returns nothing, what ``finish`` returns is sent, which is called on the loop.
        """
        self._wait()
        self._loop.run_in_executor(self._threads, work).add_done_callback(partial(self._finished, finish))

    def _take_turns(self) -> bool:
        """Tell whether to go on now; else the session goes on when its turn comes."""
        if not self._share.is_over():
            return True
        if not self.is_behind:
            self.is_behind = self.is_blocked = True
            self._share.behind += 1
            self._share.ask(self)
        return False

    def _catch_up(self) -> None:
        if self.is_behind:
            self.is_behind = False
            self._share.behind -= 1

    def _received(self, size: int) -> None:
        """Take note that so many bytes have arrived."""
        if self._window is not None:
            self._window.delivered(size)

    def _steer_input(self) -> None:
        """Let the client send for what was worked off, and take nothing more of it while something blocks."""
        if self._channel is None or self._window is None or self._ended:
            return
        self._window.open_for(self._kept)
        if self.is_blocked:
            self._channel.pause_reading()

    def _exit(self) -> None:
        if self._channel is not None and not self._channel.is_closing():
            self._channel.exit(0)

    def _abort(self) -> None:
        self.sever()
        if self._channel is not None:
            self._channel.abort()

    def _finished(self, finish: Callable[[], bytes] | None, done: asyncio.Future[bytes]) -> None:
        self._waiting = False
        answer = b"" if done.cancelled() else done.result()
        if not answer and finish is not None and not self._ended:
            answer = finish()
        if answer:
            self._send([answer])
        self._after_slow()
        self._unblock()

    def _retry(self) -> None:
        if not self._ended and self._is_stalled():
            self._loop.call_later(_RETRY_SECONDS, self._retry)
            return
        self._waiting = False
        self._unblock()

    def _wait(self) -> None:
        self._waiting = self.is_blocked = True

    def _unblock(self) -> None:
        self.is_blocked = self.is_held or self.is_behind
        if not self.is_blocked:
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._ended or self._channel is None or self.is_blocked:
            return
        self._pump()
        # What waits with us is worked off first: else each request that takes long would bring in another piece.
        self._take_input()

    def _take_input(self) -> None:
        if self._channel is not None and not (self._ended or self.is_blocked):
            self._channel.resume_reading()
