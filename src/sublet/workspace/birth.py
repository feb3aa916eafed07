"""What a file is, whatever it is called: device, inode, and when it came to be, since inode numbers are used again."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from typing import Final

_AT_SYMLINK_NOFOLLOW: Final = 0x100
_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
_STATX_BYTES: Final = 256
_BTIME_AT: Final = 80
"""Where the birth time lies in ``struct statx``: seconds in 8 bytes, then nanoseconds in 4."""

_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
if _statx is not None:
    _statx.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p]


@dataclass(frozen=True, slots=True)
class Identity:
    """One file. ``born_ns`` is 0 where the file system does not say it."""

    device: int
    inode: int
    born_ns: int

    @classmethod
    def of(cls, status: os.stat_result, directory: int, name: bytes = b"") -> Identity:
        """Return what ``status`` is of: ``name`` in the open directory, or where it is empty the open file itself."""
        return cls(status.st_dev, status.st_ino, _born(directory, name))

    def text(self) -> bytes:
        """Return it as text without a blank."""
        return b"%d:%d:%d" % (self.device, self.inode, self.born_ns)

    @classmethod
    def read(cls, text: bytes) -> Identity | None:
        """Return what ``text`` made, or None."""
        try:
            device, inode, born = map(int, text.split(b":"))
        except ValueError:
            return None
        return cls(device, inode, born)


def _born(directory: int, name: bytes) -> int:
    if _statx is None or not sys.platform.startswith("linux"):
        return 0
    raw = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx(directory, name, _AT_SYMLINK_NOFOLLOW | _AT_EMPTY_PATH, _STATX_BTIME, raw) != 0:
        return 0
    found = raw.raw
    if not int.from_bytes(found[:4], sys.byteorder) & _STATX_BTIME:
        return 0
    seconds = int.from_bytes(found[_BTIME_AT : _BTIME_AT + 8], sys.byteorder, signed=True)
    return seconds * 1_000_000_000 + int.from_bytes(found[_BTIME_AT + 8 : _BTIME_AT + 12], sys.byteorder)
