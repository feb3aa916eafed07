"""Bytes of sealing from front to back: a reader that goes nowhere beyond what is there, short ids of keys, and the one
frame in which devices sign what they say."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.ezagent.errors import Refusal, Refused, malformed

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


@dataclass(frozen=True, slots=True)
class Signing:
    """How one kind of thing is signed, so that no signature of it is taken for one of another kind.

    Args:
        domain: goes before what is signed.
        what: it is, for whoever is told that it is not signed.
    """

    domain: bytes
    what: str

    def sign(self, key: SigningKey, said: bytes) -> bytes:
        """Return the signature of a key over something."""
        return key.sign(self.domain + said).signature

    def check(self, verify_key: bytes, said: bytes, signature: bytes) -> None:
        """Check that the holder of a raw public key has signed something.

        Raises:
            Refused: ``BAD_SIGNATURE``.
        """
        try:
            VerifyKey(verify_key).verify(self.domain + said, signature)
        except (BadSignatureError, ValueError):
            raise Refused(Refusal.BAD_SIGNATURE, f"{self.what} is not signed by its device") from None


class _Signed(Protocol):
    ID: ClassVar[bytes]

    @property
    def signer_key(self) -> bytes: ...

    @property
    def signature(self) -> bytes: ...

    def signed(self) -> bytes: ...

    def encode(self) -> bytes: ...


class SignedFrame:
    """What a device says: the bytes that its signature covers, behind them the signature, and an id for all of it."""

    __slots__ = ()

    @property
    def signer(self: _Signed) -> DeviceId:
        """Return the id of the device that has signed."""
        return device_id(self.signer_key)

    @property
    def id(self: _Signed) -> bytes:
        """Return what stands for the statement, its signature included."""
        return short_hash(self.ID, self.encode())

    def encode(self: _Signed) -> bytes:
        """Return the statement as it travels."""
        return self.signed() + self.signature


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
