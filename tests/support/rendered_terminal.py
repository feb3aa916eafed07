"""A command in a terminal whose screen is drawn, so that tests see what a person sees."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyte

from support.command_server import command_server
from support.daemons import SUBLET, Daemon
from support.forked import Forked

SECONDS = 60.0


class RenderedTerminal:
    """A running command and its screen."""

    def __init__(self, ours: int, process: Forked, columns: int, rows: int) -> None:
        self._ours = ours
        self.process = process
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def lines(self) -> list[str]:
        """What is seen, line by line."""
        return [str(line).rstrip() for line in self._screen.display]

    def until(self, text: str, *, gone: bool = False) -> None:
        """Wait until ``text`` is seen, or is not any more."""
        deadline = time.monotonic() + SECONDS
        while (text in "\n".join(self.lines)) is gone:
            if time.monotonic() > deadline or not self._take():
                raise AssertionError(f"{text!r} {'stays' if gone else 'is not seen'}:\n" + "\n".join(self.lines))

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Have the window another size."""
        self._screen.resize(rows, columns)
        _set_size(self._ours, columns, rows)

    def status(self) -> int:
        """Wait for the end of the command, and return its exit status."""
        deadline = time.monotonic() + SECONDS
        while self._take() and time.monotonic() < deadline:
            pass
        return self.process.wait(SECONDS)

    def _take(self) -> bool:
        """Take what has come; tell whether there may be more."""
        if not select.select([self._ours], [], [], 0.2)[0]:
            return self.process.poll() is None
        try:
            came = os.read(self._ours, 65_536)
        except OSError:  # the other side is closed
            return False
        self._stream.feed(came)
        return bool(came)


@contextmanager
def rendered(
    daemon: Daemon, *arguments: str, columns: int = 80, rows: int = 24, environ: Mapping[str, str] | None = None
) -> Iterator[RenderedTerminal]:
    """Run ``sublet`` with ``arguments`` in a terminal of that size."""
    ours, theirs = pty.openpty()
    _set_size(theirs, columns, rows)
    environment = {**daemon.environment(), "TERM": "xterm-256color", **(environ or {})}
    process = command_server().start([str(SUBLET), *arguments], env=environment, terminal=theirs)
    os.close(theirs)
    try:
        yield RenderedTerminal(ours, process, columns, rows)
    finally:
        os.close(ours)  # which hangs up
        try:
            process.wait(SECONDS)
        finally:
            process.kill()


def _set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
