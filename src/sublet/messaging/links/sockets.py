"""The sockets of the bus: the one at which peers call, and the private directory of those between links and Zenoh."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sublet.messaging.links.link import Socket

BACKLOG: Final = 64
MAX_SOCKET_PATH: Final = 100
Address = tuple[Any, ...]
"""As ``socket.connect`` takes it."""


def listening(address: Address) -> Socket:
    """Return a socket that listens.

    Raises:
        OSError: the address can't be listened on.
    """
    made = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


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
