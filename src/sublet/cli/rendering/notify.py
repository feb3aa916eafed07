"""Telling a person who looks elsewhere that the work is over: a desktop notice, else the terminal's own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sublet.daemon.api.delegation_views import DelegationView

NOTICE_SECONDS = 5.0
_BELL = "\a"


def notify(view: DelegationView) -> None:
    """Show a notice through ``notify-send`` where it is there, else by the terminal (OSC 9, and its bell).

    That nothing can be shown is no failure of the work.
    """
    from sublet.daemon.lending.end_hook import notice

    title, text = notice(view)
    program = shutil.which("notify-send")
    if program is not None and _shown([program, "--app-name=sublet", "--", title, text]):
        return
    if sys.stderr.isatty():
        # The words are clean: nothing in them can end the sequence or begin another.
        sys.stderr.write(f"\x1b]9;{title}: {text}{_BELL}{_BELL}")
        sys.stderr.flush()


def _shown(argv: list[str]) -> bool:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=NOTICE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
