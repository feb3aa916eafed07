"""Bytes of sealing from front to back: a reader that goes nowhere beyond what is there, and short ids of keys."""

from __future__ import annotations

import hashlib
import struct
from typing import Final, TypeAlias

from sublet.protocol.ezagent.errors import malformed

ID_BYTES: Final = 16
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
NO_ID: Final = bytes(ID_BYTES)
_LENGTH: Final = struct.Struct(">H")
_DEVICE: Final = b"sublet/device/2"

DeviceId: TypeAlias = bytes
"""``ID_BYTES`` that a device's signing key gives, so that an id can't be claimed for another key."""


def device_id(verify_key: bytes) -> DeviceId:
    """Return the id of the device that signs with a raw public key."""
    return short_hash(_DEVICE, verify_key)


def short_hash(domain: bytes, *parts: bytes) -> bytes:
    """Return ``ID_BYTES`` that stand for some bytes.

    Args:
        domain: what for; at most 16 bytes.
        parts: of fixed sizes, but for the last one.
    """
    return hashlib.blake2b(b"".join(parts), digest_size=ID_BYTES, person=domain).digest()


def with_length(raw: bytes) -> bytes:
    """Return bytes behind their length, of two bytes."""
    return _LENGTH.pack(len(raw)) + raw


class Reader:
    """Reads bytes from the front; what is cut off is malformed.

    Args:
        data: the bytes.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    @property
    def left(self) -> int:
        """How many bytes were not read yet."""
        return len(self._data) - self.at

    def take(self, count: int) -> bytes:
        """Return the bytes that come next.

        Raises:
            Refused: ``MALFORMED``: there are not so many.
        """
        if count > self.left:
            raise malformed("sealed bytes are cut off")
        self.at += count
        return self._data[self.at - count : self.at]

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        """Return the numbers that come next.

        Raises:
            Refused: ``MALFORMED``.
        """
        return form.unpack(self.take(form.size))

    def text(self, most: int) -> str:
        """Return a printable text that comes next, behind its length.

        Args:
            most: bytes that it may take.

        Raises:
            Refused: ``MALFORMED``.
        """
        (length,) = self.numbers(_LENGTH)
        if length > most:
            raise malformed("a name that is too long")
        try:
            text = self.take(length).decode()
        except UnicodeDecodeError:
            raise malformed("a name that is not UTF-8") from None
        if not text.isprintable():
            raise malformed("a name that can't be printed")
        return text

    def end(self) -> None:
        """Check that everything was read.

        Raises:
            Refused: ``MALFORMED``: bytes are left over.
        """
        if self.left:
            raise malformed("bytes are left over")
