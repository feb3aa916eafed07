"""What a picture of somebody is: one of four raster formats, small, told by its own first bytes and by no name.

A peer makes the bytes. So nothing that can hold a script (SVG) is a picture, and none claims a canvas that would take a
program far more memory than the file has bytes. The pixels themselves are decoded by whoever shows them.
"""

from __future__ import annotations

import struct
from typing import Final

MAX_PICTURE_BYTES: Final = 256 << 10
MAX_SIDE: Final = 1_024
"""Pixels of the width and of the height."""
_PNG: Final = b"\x89PNG\r\n\x1a\n"
_GIFS: Final = (b"GIF87a", b"GIF89a")
_NO_FRAME: Final = frozenset({0xC4, 0xC8, 0xCC})
"""Markers of JPEG between the first and the last of frames that begin no frame."""
_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers of JPEG without a length."""


def picture_type(data: bytes) -> str | None:
    """Return the media type of a picture; None where the bytes are none that is shown.

    Args:
        data: of anybody; only the first bytes, and of a JPEG its segments, are looked at.
    """
    if not 0 < len(data) <= MAX_PICTURE_BYTES:
        return None
    for kind, size in (("image/png", _png), ("image/gif", _gif), ("image/webp", _webp), ("image/jpeg", _jpeg)):
        try:
            found = size(data)
        except (struct.error, IndexError):  # it ends within what says how large it is
            continue
        if found is not None:
            return kind if all(0 < side <= MAX_SIDE for side in found) else None
    return None


def _png(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(_PNG) or data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int] | None:
    if not data.startswith(_GIFS):
        return None
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _webp(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Return the size that the first frame names; each step goes over a whole segment."""
    if data[:3] != b"\xff\xd8\xff":
        return None
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF or marker in _ALONE:
            at += 1 if marker == 0xFF else 2
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        if length < 2:
            return None
        at += 2 + length
    return None
