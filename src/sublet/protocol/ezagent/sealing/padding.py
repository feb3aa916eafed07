"""Lengths in steps, so that the size of what is sealed says little of what was written.

Up to 4 KiB there are sixteen lengths, and beyond that eight for each doubling, so that at most an eighth is added:
whoever counts bytes learns a step. Weak: a burst of messages in one envelope is longer than one of them.
"""

from __future__ import annotations

import struct
from typing import Final

from sublet.protocol.ezagent.errors import malformed

LEAST_STEP: Final = 256
"""Bytes; nothing that is sealed is shorter."""
STEPS_OF_DOUBLING: Final = 8
_LENGTH: Final = struct.Struct(">I")
FRAME_BYTES: Final = _LENGTH.size
"""What stands before what is padded."""


def padded_size(size: int) -> int:
    """Return the length of the step that so many bytes are padded to."""
    doubling = 1 << max(size - 1, 1).bit_length() - 1
    step = max(LEAST_STEP, doubling // STEPS_OF_DOUBLING)
    return max(-(-size // step), 1) * step


def pad(plain: bytes) -> bytes:
    """Return bytes behind their length, and behind them zeros up to the next step."""
    framed = _LENGTH.pack(len(plain)) + plain
    return framed.ljust(padded_size(len(framed)), b"\0")


def unpad(padded: bytes) -> bytes:
    """Return the bytes that were padded.

    Raises:
        Refused: ``MALFORMED``: another step than theirs, or something else than zeros behind them.
    """
    if len(padded) < _LENGTH.size:
        raise malformed("what was sealed is cut off")
    (size,) = _LENGTH.unpack_from(padded)
    plain = padded[_LENGTH.size : _LENGTH.size + size]
    if len(plain) != size or pad(plain) != padded:
        raise malformed("what was sealed is padded in another way")
    return plain
