"""The private directory of the sockets between links and Zenoh."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

BACKLOG: Final = 64
MAX_SOCKET_PATH: Final = 100
Address = tuple[Any, ...]
"""As ``socket.connect`` takes it."""


def private_directory(wanted: Path) -> Path:
    """Return an empty directory that only we enter, with a path that Zenoh and sockets can have."""
    text = os.fsencode(wanted)
    if len(text) + 12 > MAX_SOCKET_PATH or not text.isascii() or set(text) & set(b"?#;*$"):
        return Path(tempfile.mkdtemp(prefix="sublet-bus-"))
    remove_directory(wanted)
    wanted.mkdir(mode=0o700, parents=True)
    return wanted


def remove_directory(directory: Path) -> None:
    """Remove a directory of sockets."""
    with suppress(OSError):
        for one in directory.iterdir():
            one.unlink()
        directory.rmdir()
