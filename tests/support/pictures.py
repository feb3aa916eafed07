"""Small pictures of each format, whose pixels are real, and bytes that are none."""

from __future__ import annotations

import struct
import zlib
from typing import Final


def png(
    width: int = 2,
    height: int = 2,
    claimed: tuple[int, int] | None = None,
    colour: tuple[int, int, int] = (255, 0, 0),
) -> bytes:
    """Return a PNG of one colour, red by default, which may claim another size than it has."""
    rows = b"".join(b"\0" + bytes(colour) * width for _ in range(height))
    shape = struct.pack(">IIBBBBB", *(claimed or (width, height)), 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", shape), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def jpeg(width: int, height: int, before: bytes = b"") -> bytes:
    """Return the segments of a JPEG up to its first frame."""
    frame = struct.pack(">HBHHB", 8 + 3, 8, height, width, 1) + b"\1\x11\0"
    return b"\xff\xd8" + b"\xff\xe0\0\x04JF" + before + b"\xff\xc2" + frame + b"\xff\xd9"


def gif(width: int, height: int) -> bytes:
    """Return the head of a GIF."""
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def webp(kind: bytes, width: int, height: int) -> bytes:
    """Return the head of a WebP of a kind: ``VP8X``, ``VP8L`` or ``VP8 ``."""
    if kind == b"VP8X":
        body = b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == b"VP8L":
        body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
    else:
        body = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return b"RIFF" + struct.pack("<I", len(body) + 12) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


SVG: Final = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
NO_PICTURES: Final = {
    "svg": SVG,
    "svg with a declaration": b'<?xml version="1.0"?>' + SVG,
    "page": b"<!doctype html><script>alert(1)</script>",
    "nothing": b"",
    "text": b"hello",
    "a magic number alone": b"\x89PNG\r\n\x1a\n",
    "cut off": png()[:20],
    "a canvas of gigabytes": png(claimed=(60_000, 60_000)),
    "no width": png(claimed=(0, 5)),
    "endless segments": b"\xff\xd8" + b"\xff\xe1\0\0" * 50,
    "only fill bytes": b"\xff\xd8" + b"\xff" * 5_000,
    "too large": png() + bytes(256 << 10),
}
