"""A command in a terminal of its own, as a person sits at it: prompts are answered as they come."""

from __future__ import annotations

import os
import pty
import select
import time
from collections.abc import Sequence

from support.command_server import command_server
from support.daemons import SUBLET, Daemon

SECONDS = 40.0


def typed(daemon: Daemon, *arguments: str, answers: Sequence[tuple[str, str]]) -> tuple[int, str]:
    """Run ``sublet`` with ``arguments`` in a terminal; return its status and all that the terminal showed.

    Args:
        daemon: whose.
        arguments: of the command.
        answers: what is waited for, and what is then typed, one after the other.
    """
    ours, theirs = pty.openpty()
    process = command_server().start([str(SUBLET), *arguments], env=daemon.environment(), terminal=theirs)
    os.close(theirs)
    shown, seen, deadline = "", 0, time.monotonic() + SECONDS
    left = list(answers)
    try:
        while True:
            if time.monotonic() > deadline:
                raise AssertionError(f"the command does not end; it showed {shown!r}")
            if not select.select([ours], [], [], 0.2)[0]:
                continue
            try:
                got = os.read(ours, 65_536)
            except OSError:  # the other side is closed
                break
            shown += got.decode(errors="replace")
            if left and left[0][0] in shown[seen:]:
                seen = len(shown)
                os.write(ours, left.pop(0)[1].encode() + b"\n")
        return process.wait(SECONDS), shown
    finally:
        process.kill()
        process.wait(SECONDS)
        os.close(ours)
