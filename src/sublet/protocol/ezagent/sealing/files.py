"""A file of a sealed room as it is kept, named and told: sealed, under the hash of that (ezagent 5, EXT-10).

``version u8 · commitment 32 bytes · XChaCha20-Poly1305 of the file behind its length and before its padding``

Rules: the hash of all these bytes is what the room names, so whoever is no member learns neither the file's own hash
nor its length beyond a step. Of a file's key the bytes hold a commitment, so that one address stands for one file,
whatever keys a room's members write beside it. A key is made of the file and of the epoch's key: the same file has
one address while an epoch lasts, and whoever lacks that key can't try whether a file that it knows is in the room.
Weak: whoever holds the epoch's key can, a member that was removed later among them.
"""

from __future__ import annotations

import hashlib
from typing import Final

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_ABYTES,
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
)
from nacl.exceptions import CryptoError

from sublet.protocol.ezagent.blob import MAX_BLOB_BYTES, MAX_KEPT_BYTES
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.sealing.padding import FRAME_BYTES, pad, padded_size, unpad
from sublet.protocol.ezagent.sealing.wire import KEY_BYTES

VERSION: Final = b"\x01"
_AROUND: Final = len(VERSION) + KEY_BYTES + crypto_aead_xchacha20poly1305_ietf_ABYTES
_NONCE: Final = bytes(crypto_aead_xchacha20poly1305_ietf_NPUBBYTES)
"""Every file has a key of its own, with which nothing else is ever sealed."""
_FILE: Final = b"sublet/file/1"
_COMMIT: Final = b"sublet/f-commit"
_BOX: Final = b"sublet/f-box/1"


def file_key(epoch_key: bytes, data: bytes) -> bytes:
    """Return the key of a file: another one for each file, and for the same file under each epoch.

    Args:
        epoch_key: ``KEY_BYTES``, which members alone know.
        data: the file.
    """
    return _keyed(epoch_key, _FILE, hashlib.blake2b(data).digest())


def sealed_size(size: int) -> int:
    """Return how many bytes a file of so many takes once it is sealed."""
    return _AROUND + padded_size(size + FRAME_BYTES)


def seal_file(key: bytes, data: bytes) -> bytes:
    """Return a file sealed.

    Args:
        key: of this file alone, ``KEY_BYTES``.
        data: at most ``MAX_BLOB_BYTES``.

    Raises:
        Refused: ``OVERSIZED``.
    """
    if len(data) > MAX_BLOB_BYTES:
        raise Refused(Refusal.OVERSIZED, f"a file of {len(data)} bytes")
    head = VERSION + _keyed(key, _COMMIT, b"")
    return head + crypto_aead_xchacha20poly1305_ietf_encrypt(pad(data), head, _NONCE, _keyed(key, _BOX, b""))


def open_file(key: bytes, raw: bytes) -> bytes:
    """Return the file that was sealed.

    Args:
        key: as the room's members say.
        raw: the sealed file, whose hash was compared before.

    Raises:
        Refused: ``OVERSIZED``; ``BAD_SIGNATURE``: it was not sealed with this key; ``MALFORMED``.
    """
    if len(raw) > MAX_KEPT_BYTES:
        raise Refused(Refusal.OVERSIZED, f"a sealed file of {len(raw)} bytes")
    head = raw[: len(VERSION) + KEY_BYTES]
    if raw[: len(VERSION)] != VERSION or len(key) != KEY_BYTES:
        raise malformed("a sealed file of another form")
    if head != VERSION + _keyed(key, _COMMIT, b""):
        raise Refused(Refusal.BAD_SIGNATURE, "a file that was sealed with another key")
    try:
        padded = crypto_aead_xchacha20poly1305_ietf_decrypt(raw[len(head) :], head, _NONCE, _keyed(key, _BOX, b""))
    except (CryptoError, ValueError, TypeError):
        raise Refused(Refusal.BAD_SIGNATURE, "a sealed file does not open") from None
    return unpad(padded)


def _keyed(key: bytes, purpose: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=KEY_BYTES, key=key, person=purpose).digest()
