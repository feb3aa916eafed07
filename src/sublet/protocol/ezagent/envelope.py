"""The signed envelope that every update travels in (ezagent 3.3): big-endian, signed over all preceding bytes.

``version u8 · signer u16+bytes · document u16+bytes · time i64 (Unix ms) · payload u32+bytes · signature 64 bytes``
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.ids import EntityId, checked_entity_id
from sublet.protocol.ezagent.keys import MAX_KEY_CHARS

VERSION: Final = 1
SIGNATURE_BYTES: Final = 64
MAX_PAYLOAD_BYTES: Final = 1 << 20
MAX_ENVELOPE_BYTES: Final = MAX_PAYLOAD_BYTES + 2_048
_HEAD: Final = struct.Struct(">BH")
_LENGTH: Final = struct.Struct(">H")
_TAIL: Final = struct.Struct(">qI")


@dataclass(frozen=True, slots=True)
class Envelope:
    """An envelope as received or made; ``signed`` are the bytes that the signature covers."""

    signer: EntityId
    doc_id: str
    timestamp_ms: int
    payload: bytes
    signed: bytes
    signature: bytes

    @property
    def raw(self) -> bytes:
        """Return all bytes of the envelope."""
        return self.signed + self.signature


def seal(key: SigningKey, signer: EntityId, doc_id: str, timestamp_ms: int, payload: bytes) -> Envelope:
    """Return a signed envelope.

    Args:
        key: the signer's Ed25519 key, or that of one of its devices.
        signer: entity that answers for the payload.
        doc_id: document that the payload belongs to, without a channel.
        timestamp_ms: Unix time in milliseconds.
        payload: at most ``MAX_PAYLOAD_BYTES``.

    Raises:
        Refused: ``OVERSIZED``.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise Refused(Refusal.OVERSIZED, f"a payload of {len(payload)} bytes")
    who, where = signer.encode(), doc_id.encode()
    signed = b"".join(
        (
            _HEAD.pack(VERSION, len(who)),
            who,
            _LENGTH.pack(len(where)),
            where,
            _TAIL.pack(timestamp_ms, len(payload)),
            payload,
        )
    )
    return Envelope(signer, doc_id, timestamp_ms, payload, signed, key.sign(signed).signature)


def unpack(raw: bytes) -> Envelope:
    """Return the envelope in ``raw``; its signature is not yet verified.

    Raises:
        Refused: ``MALFORMED`` or ``OVERSIZED``.
    """
    if len(raw) > MAX_ENVELOPE_BYTES:
        raise Refused(Refusal.OVERSIZED, f"an envelope of {len(raw)} bytes")
    try:
        version, length = _HEAD.unpack_from(raw)
        place = _HEAD.size + length
        who = raw[_HEAD.size : place]
        (length,) = _LENGTH.unpack_from(raw, place)
        place += _LENGTH.size
        where = raw[place : place + length]
        place += length
        timestamp_ms, length = _TAIL.unpack_from(raw, place)
    except struct.error:
        raise malformed("an envelope is cut off") from None
    place += _TAIL.size
    end = place + length
    if version != VERSION:
        raise malformed(f"envelope version {version}")
    if len(raw) != end + SIGNATURE_BYTES:
        raise malformed("the lengths of an envelope do not add up")
    try:
        signer, doc_id = who.decode(), where.decode()
    except UnicodeDecodeError:
        raise malformed("a name in an envelope is not UTF-8") from None
    if len(doc_id) > MAX_KEY_CHARS:
        raise malformed("a document's id is too long")
    return Envelope(checked_entity_id(signer), doc_id, timestamp_ms, raw[place:end], raw[:end], raw[end:])


def verify(envelope: Envelope, keys: tuple[VerifyKey, ...]) -> None:
    """Check that one of ``keys`` has signed the envelope.

    Args:
        envelope: as unpacked.
        keys: the signer's own key and those of its devices.

    Raises:
        Refused: ``BAD_SIGNATURE``.
    """
    for key in keys:
        try:
            key.verify(envelope.signed, envelope.signature)
        except (BadSignatureError, ValueError):
            continue
        return
    raise Refused(Refusal.BAD_SIGNATURE, f"not signed by {envelope.signer}")
