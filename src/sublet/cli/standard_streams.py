"""Standard streams that are closed, or take nothing: neither is a fault of ours, and neither may look like one.

Loaded before anything else, so it imports next to nothing.
"""

from __future__ import annotations

import io
import os
import sys

STANDARD = (0, 1, 2)


class OutputLost(OSError):
    """Standard output does not take what is written to it: the disk that it goes to is full, or broken."""


class _Output(io.FileIO):
    """Standard output, whose errors can be told from all others."""

    def write(self, data: object, /) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(error.errno, error.strerror) from None


def open_closed() -> None:
    """Give those that are closed the empty device.

    Python has None for such a stream, which nobody writes to without a check; and whatever is opened next, such as a
    database or a socket, would get its number and what others write to it.
    """
    for fd in STANDARD:
        try:
            os.fstat(fd)
        except OSError:
            made = os.open(os.devnull, os.O_RDONLY if fd == 0 else os.O_WRONLY)
            if made != fd:
                os.dup2(made, fd)
                os.close(made)
            os.set_inheritable(fd, True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - for as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def tell_lost_output() -> None:
    """Have standard output raise ``OutputLost`` from now on where it takes nothing."""
    old = sys.stdout
    if not isinstance(old, io.TextIOWrapper):
        return
    old.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output(old.fileno(), "wb", closefd=False)),
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=old.line_buffering,
        write_through=old.write_through,
    )


def drop_output() -> None:
    """Send what is still to be written nowhere, so that the interpreter's own flush at exit has no complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
