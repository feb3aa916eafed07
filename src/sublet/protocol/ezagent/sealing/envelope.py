"""The sealed envelope: what travels of a sealed room, of which only the outer header is read by others.

``version u8 · device u16+16 bytes · document u16+bytes · epoch 16 bytes · client u64 · start u32 · end u32 · head 16
bytes · deletions u8+bytes · size u32 · sealed bytes · signature 64 bytes``, all big-endian. What is sealed is the inner
envelope as it is without sealing, with the contents that go with it, padded in steps (``padding``).

Rules: the header is the associated data of XChaCha20-Poly1305 and is signed, with what is sealed, by the writer's
device: a relay that has its key refuses what is forged, and a member what was put under another header. The nonce is a
keyed hash of header and content, so nobody has to count or draw one, and sealing the same twice says nothing new. An
epoch's id commits to its key (``statements``), so that no bytes open under two keys. The header tells where an update
stands in its writer's log, and ``check_told`` holds it to what is inside: a member that lies to relays is refused.
Weak: who writes, when, how much and in which document is seen by all who carry it.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_ABYTES,
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
)
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey

from sublet.protocol.ezagent.bundle import MAX_BUNDLE_BYTES
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.keys import MAX_KEY_CHARS, parse_doc_id
from sublet.protocol.ezagent.sealing.padding import pad, padded_size, unpad
from sublet.protocol.ezagent.sealing.wire import (
    ID_BYTES,
    KEY_BYTES,
    NO_ID,
    SIGNATURE_BYTES,
    DeviceId,
    Reader,
    Signing,
    device_id,
    short_hash,
    with_length,
)
from sublet.protocol.ezagent.yjs.update import MAX_CLIENT, MAX_CLOCK, Update

VERSION: Final = 0x81
"""Never that of an envelope that is not sealed."""
MAX_PLAIN_BYTES: Final = MAX_BUNDLE_BYTES
_NONCE_BYTES: Final = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
MAX_SEALED_BYTES: Final = _NONCE_BYTES + padded_size(MAX_PLAIN_BYTES + 4) + crypto_aead_xchacha20poly1305_ietf_ABYTES
_MAX_HEADER_BYTES: Final = 1_024
_DEVICE: Final = struct.Struct(">BH")
_PLACE: Final = struct.Struct(f">{ID_BYTES}sQII{ID_BYTES}sB")
_SIZE: Final = struct.Struct(">I")
_SIGNED: Final = Signing(b"sublet/sealed/1\n", "a sealed envelope")
_BOX_KEY: Final = b"sublet/seal/1"
_NONCE_KEY: Final = b"sublet/nonce/1"
_MARK_KEY: Final = b"sublet/mark/1"
_HEAD: Final = b"sublet/s-head/1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an update stands in the log of its writer's client; all zero for what is said in passing.

    Args:
        client: the writer's Yjs client id.
        start: its first clock in this update.
        end: the clock after its last; ``start`` where the update only deletes.
        head: of that client's sealed log before this update, which ``head_after`` goes on from.
        deletions: empty, or a mark of ``ID_BYTES`` where it deletes something, which is alike for alike updates.
    """

    client: int = 0
    start: int = 0
    end: int = 0
    head: bytes = NO_ID
    deletions: bytes = b""


PASSING: Final = Place()


@dataclass(frozen=True, slots=True)
class Header:
    """What everybody reads of a sealed envelope."""

    device: DeviceId
    document: str
    epoch: bytes
    place: Place = PASSING

    def encode(self) -> bytes:
        """Return the header as it travels, without the size of what follows."""
        place = self.place
        numbers = _PLACE.pack(self.epoch, place.client, place.start, place.end, place.head, len(place.deletions))
        who = _DEVICE.pack(VERSION, len(self.device)) + self.device
        return b"".join((who, with_length(self.document.encode()), numbers, place.deletions))


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed envelope as received or made; ``signed`` are the bytes that the signature covers."""

    header: Header
    box: bytes
    signed: bytes
    signature: bytes

    @property
    def raw(self) -> bytes:
        """Return all bytes of it."""
        return self.signed + self.signature

    def head_after(self) -> bytes:
        """Return the head of the client's sealed log after this envelope: ``ID_BYTES`` over all bytes so far."""
        return short_hash(_HEAD, self.header.place.head, self.raw)


def is_sealed(raw: bytes) -> bool:
    """Tell whether bytes claim to be a sealed envelope."""
    return raw[:1] == bytes([VERSION])


def place_of(update: Update, payload: bytes, epoch_key: bytes, head: bytes = NO_ID) -> Place:
    """Return what the header tells of an update.

    Args:
        update: as decoded from ``payload``.
        payload: of the inner envelope.
        epoch_key: makes the mark of what it deletes, which says nothing without the key.
        head: of the client's sealed log before.
    """
    mark = _keyed(epoch_key, _MARK_KEY, payload, ID_BYTES) if update.deletions else b""
    if not update.items:
        return Place(head=head, deletions=mark)
    return Place(update.client, update.start, update.end, head, mark)


def check_told(header: Header, document: str, update: Update, payload: bytes, epoch_key: bytes) -> None:
    """Check that the header has told the truth of what was inside.

    Args:
        header: of the sealed envelope.
        document: id in the inner envelope.
        update: as decoded from ``payload``.
        payload: of the inner envelope.
        epoch_key: with which it was opened.

    Raises:
        Refused: ``FOREIGN_KEY``: it tells of another document, or of another place.
    """
    if header.document != document or header.place != place_of(update, payload, epoch_key, header.place.head):
        raise Refused(Refusal.FOREIGN_KEY, "the header of a sealed update tells of another one")


def seal(device: SigningKey, epoch_key: bytes, header: Header, plain: bytes) -> Sealed:
    """Return something sealed under an epoch's key; the same bytes however often it is asked for.

    Args:
        device: key of the writer's device, whose id stands in the header.
        epoch_key: ``KEY_BYTES``.
        header: what everybody may read.
        plain: what only members may read, at most ``MAX_PLAIN_BYTES``.

    Raises:
        Refused: ``OVERSIZED``.
        ValueError: a header of another device.
    """
    if len(plain) > MAX_PLAIN_BYTES:
        raise Refused(Refusal.OVERSIZED, f"{len(plain)} bytes to be sealed")
    if header.device != device_id(bytes(device.verify_key)):
        raise ValueError("a header of another device")
    padded, outer = pad(plain), header.encode()
    nonce = _nonce(epoch_key, outer, padded)
    box = nonce + crypto_aead_xchacha20poly1305_ietf_encrypt(padded, outer, nonce, _derived(epoch_key, _BOX_KEY))
    signed = outer + _SIZE.pack(len(box)) + box
    return Sealed(header, box, signed, _SIGNED.sign(device, signed))


def unpack(raw: bytes) -> Sealed:
    """Return the sealed envelope in ``raw``; neither its signature nor what is inside is checked yet.

    Raises:
        Refused: ``MALFORMED`` or ``OVERSIZED``.
    """
    if len(raw) > MAX_SEALED_BYTES + _MAX_HEADER_BYTES + SIGNATURE_BYTES:
        raise Refused(Refusal.OVERSIZED, f"a sealed envelope of {len(raw)} bytes")
    reader = Reader(raw)
    version, length = reader.numbers(_DEVICE)
    if version != VERSION or length != ID_BYTES:
        raise malformed(f"a sealed envelope of version {version}")
    device, document = reader.take(ID_BYTES), reader.text(MAX_KEY_CHARS)
    epoch, client, start, end, head, deletions = _PLACE.unpack(reader.take(_PLACE.size))
    if client > MAX_CLIENT or not start <= end <= MAX_CLOCK or deletions not in (0, ID_BYTES):
        raise malformed("a sealed envelope tells of a place that can't be")
    header = Header(device, document, epoch, Place(client, start, end, head, reader.take(deletions)))
    parse_doc_id(document)
    (size,) = reader.numbers(_SIZE)
    if size > MAX_SEALED_BYTES:
        raise Refused(Refusal.OVERSIZED, f"{size} sealed bytes")
    box = reader.take(size)
    end_of_signed = reader.at
    signature = reader.take(SIGNATURE_BYTES)
    reader.end()
    return Sealed(header, box, raw[:end_of_signed], signature)


def verify(sealed: Sealed, verify_key: bytes) -> None:
    """Check that the device of the header has signed it, whether one can read it or not.

    Args:
        sealed: as unpacked.
        verify_key: raw public key of the device.

    Raises:
        Refused: ``BAD_SIGNATURE``.
    """
    if device_id(verify_key) != sealed.header.device:
        raise Refused(Refusal.BAD_SIGNATURE, "a sealed envelope is not signed by that device")
    _SIGNED.check(verify_key, sealed.signed, sealed.signature)


def open_sealed(sealed: Sealed, epoch_key: bytes) -> bytes:
    """Return what was sealed.

    Args:
        sealed: as unpacked.
        epoch_key: of the epoch that its header names.

    Raises:
        Refused: ``BAD_SIGNATURE``: it was not sealed with this key, or under this header; ``MALFORMED``.
    """
    nonce = sealed.box[:_NONCE_BYTES]
    outer = sealed.header.encode()
    try:
        padded = crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed.box[len(nonce) :], outer, nonce, _derived(epoch_key, _BOX_KEY)
        )
    except (CryptoError, ValueError, TypeError):
        raise Refused(Refusal.BAD_SIGNATURE, "what is sealed does not open") from None
    if nonce != _nonce(epoch_key, outer, padded):
        raise malformed("what is sealed has another nonce than its own")
    return unpad(padded)


def _nonce(epoch_key: bytes, outer: bytes, padded: bytes) -> bytes:
    content = hashlib.blake2b(outer).digest() + padded
    return _keyed(epoch_key, _NONCE_KEY, content, _NONCE_BYTES)


def _derived(epoch_key: bytes, purpose: bytes) -> bytes:
    return _keyed(epoch_key, purpose, b"", KEY_BYTES)


def _keyed(epoch_key: bytes, purpose: bytes, content: bytes, size: int) -> bytes:
    return hashlib.blake2b(content, digest_size=size, key=epoch_key, person=purpose).digest()
