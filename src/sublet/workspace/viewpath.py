"""Names in a view: how a client's path becomes components, and which link targets stay inside."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final

MAX_TARGET_BYTES: Final = 4_095
"""What the target of a link may hold on Linux."""

Parts = Sequence[bytes]
"""Components below some root, raw and without ``.``, ``..`` or empty ones; the root itself has none."""

MAX_PATH_BYTES: Final = 4096
MAX_NAME_BYTES: Final = 255
"""Bytes of one component, as file systems have it."""
MAX_DEPTH: Final = 256
"""Components of a path. What is lent is no deeper than the walk over it goes, which is less."""


def refused(code: int) -> OSError:
    """Return the error for ``code`` in the system's words, so that no path ever travels in an error text."""
    return OSError(code, os.strerror(code))


def split(path: bytes) -> list[bytes]:
    """Return the components of a client's path; ``..`` stops at the root, as it does in any root directory.

    Raises:
        OSError: ``EINVAL`` for a NUL byte, ``ENAMETOOLONG`` for a path or name that no file can have.
    """
    if b"\0" in path:
        raise refused(errno.EINVAL)
    if path[:1] == b"/" and b"/." not in path and b"//" not in path and path[-1:] != b"/":
        parts = path[1:].split(b"/")  # what sshfs sends, and the most frequent call of all
    else:
        parts = _plain(path)
    if len(path) > MAX_NAME_BYTES and (
        len(path) > MAX_PATH_BYTES or len(parts) > MAX_DEPTH or max(map(len, parts), default=0) > MAX_NAME_BYTES
    ):
        raise refused(errno.ENAMETOOLONG)
    return parts


def _plain(path: bytes) -> list[bytes]:
    parts: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            if parts:
                parts.pop()
        elif part not in (b"", b"."):
            parts.append(part)
    return parts


def link_stays(depth: int, target: bytes) -> bool:
    """Tell whether a link in a directory ``depth`` levels below the root can only lead to names below the root.

    ``..`` counts only at the front, where it climbs real directories. After a name it could climb from wherever
    another link leads (``s -> .`` makes ``s/s/../..`` leave), so such a target never qualifies. Nor does one that
    somebody may cut: behind a NUL byte, or behind what a link can hold.
    """
    if not target or target.startswith(b"/") or b"\0" in target or len(target) > MAX_TARGET_BYTES:
        return False
    climbing = True
    for part in target.split(b"/"):
        if part == b"..":
            if not climbing or depth == 0:
                return False
            depth -= 1
        elif part not in (b"", b"."):
            climbing = False
    return True
