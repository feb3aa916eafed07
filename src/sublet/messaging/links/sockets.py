"""The private directory of the sockets between links and Zenoh."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sublet.messaging.links.keys import key_id

BACKLOG: Final = 64
MAX_SOCKET_PATH: Final = 100
_NAME_BYTES: Final = 16
"""Of a socket's name, with what stands before it."""
_PREFIX: Final = "sublet-bus-"
_SHORT: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (a private directory is made in one of them)
Address = tuple[Any, ...]
"""As ``socket.connect`` takes it."""


def private_directory(wanted: Path) -> Path:
    """Return an empty directory that only we enter, with a path that Zenoh and sockets can have.

    Where the wanted one has another path, a temporary one takes its place: below ``TMPDIR`` if that is short enough,
    else below another directory that this system has for such.

    Args:
        wanted: made, or emptied.

    Raises:
        OSError: none can be made, or their paths are all too long.
    """
    if _fits(wanted):
        remove_directory(wanted)
        wanted.mkdir(mode=0o700, parents=True)
        return wanted
    failure: OSError | None = None
    for place in dict.fromkeys((tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", ""), *_SHORT)):
        if place and _fits(Path(place, _PREFIX + "0" * 8)):
            try:
                return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
            except OSError as error:
                failure = error
    raise failure or OSError(
        errno.ENAMETOOLONG, f"the path of a socket may have {MAX_SOCKET_PATH} characters at most", str(wanted)
    )


def _fits(directory: Path) -> bool:
    """Tell whether sockets in a directory have paths that Zenoh and the system take."""
    text = os.fsencode(directory)
    return len(text) + _NAME_BYTES <= MAX_SOCKET_PATH and text.isascii() and not set(text) & set(b"?#;*$")


def remove_directory(directory: Path) -> None:
    """Remove a directory of sockets."""
    with suppress(OSError):
        for one in directory.iterdir():
            one.unlink()
        directory.rmdir()


def name_of(key: bytes) -> str:
    """Return how the sockets for a peer are called."""
    return key_id(key)[:5].hex()


def listening_at(path: Path) -> socket.socket:
    """Return a socket at a path, at which one may call.

    Raises:
        OSError: it can't be made.
    """
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(str(path))
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made
