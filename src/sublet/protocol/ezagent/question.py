"""A question that tells who asks, so that a peer can decide whether to answer (DESIGN 6.4).

It is a bundle of the asker's record, which proves itself, and an envelope under the key that is asked for. Its payload
begins with a domain of its own, so that it is never taken for an update, nor an update for a question.

A question goes to all who listen under its key, so anybody may pass it on. The answer is sealed for the asker, to whom
alone it says anything; where its length would say something too, it is padded before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nacl.exceptions import CryptoError
from nacl.exceptions import RuntimeError as NaclRuntimeError
from nacl.public import SealedBox
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.ezagent.bundle import MAX_BUNDLE_BYTES, RecordKind, decode_bundle, encode_bundle
from sublet.protocol.ezagent.envelope import Envelope, seal, unpack, verify
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.identity import EntityRecord, parse_record
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.sealing.padding import FRAME_BYTES, pad, padded_size, unpad

NONCE_BYTES: Final = 16
MAX_AGE_MS: Final = 5 * 60 * 1_000
"""How far from now a question is of now; of another clock it has to be of that clock's now."""
MAX_QUESTION_BYTES: Final = 1 << 20
MAX_SEALED_BYTES: Final = padded_size(MAX_BUNDLE_BYTES + FRAME_BYTES) + 64
_PADDED: Final = b"\x83"
"""What begins an answer that is padded; never one that is not."""
_DOMAIN: Final = b"sublet/question/1\n"


@dataclass(frozen=True, slots=True)
class Question:
    """Who asks, in which words, and what makes the question another one than any before."""

    asker: EntityId
    body: bytes
    nonce: bytes
    key: VerifyKey
    """With which the asker has signed, and for which the answer is sealed."""
    version: int
    """Of the asker's record, which may be an old one."""
    signed_ms: int
    """When the asker signed it, Unix milliseconds, by the asker's clock."""
    of_now: bool
    """Whether that is about now by the clock of who reads it."""


def encode_question(
    key: str, record: EntityRecord, signer: SigningKey, now_ms: int, nonce: bytes, body: bytes
) -> bytes:
    """Return a question as it travels.

    Args:
        key: the key that is asked for, with its channel.
        record: who asks.
        signer: the asker's key.
        now_ms: Unix time in milliseconds.
        nonce: ``NONCE_BYTES`` random bytes.
        body: what is asked, such as a state vector.

    Raises:
        ValueError: a nonce of another size.
    """
    if len(nonce) != NONCE_BYTES:
        raise ValueError("a nonce of another size")
    envelope = seal(signer, record.entity_id, key, now_ms, _DOMAIN + nonce + body)
    return encode_bundle(((RecordKind.IDENTITY, record.encode()), (RecordKind.ENVELOPE, envelope.raw)))


def parse_question(key: str, raw: bytes, now_ms: int) -> Question:
    """Return a question that was asked under ``key``, its asker proven.

    Returns:
        The question; ``of_now`` tells whether it was signed at about this time.

    Raises:
        Refused: ``OVERSIZED``, ``MALFORMED``, ``BAD_SIGNATURE``; ``FOREIGN_KEY``: it was asked under another key.
    """
    if len(raw) > MAX_QUESTION_BYTES:
        raise Refused(Refusal.OVERSIZED, f"a question of {len(raw)} bytes")
    bundle = decode_bundle(raw)
    if [kind for kind, _ in bundle.records] != [RecordKind.IDENTITY, RecordKind.ENVELOPE]:
        raise malformed("a question of another form")
    record, envelope = parse_record(bundle.records[0][1]), unpack(bundle.records[1][1])
    if envelope.signer != record.entity_id or not envelope.payload.startswith(_DOMAIN):
        raise malformed("a question of another form")
    signed_with = _signed_with(envelope, record)
    if envelope.doc_id != key:
        raise Refused(Refusal.FOREIGN_KEY, "a question that was asked elsewhere")
    rest = envelope.payload[len(_DOMAIN) :]
    if len(rest) < NONCE_BYTES:
        raise malformed("a question without a nonce")
    nonce, body = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
    of_now = abs(envelope.timestamp_ms - now_ms) <= MAX_AGE_MS
    return Question(record.entity_id, body, nonce, signed_with, record.version, envelope.timestamp_ms, of_now)


def seal_answer(question: Question, answer: bytes, *, in_steps: bool = False) -> bytes:
    """Return an answer that only the asker can open; ``in_steps``: whose length says little of it.

    Raises:
        Refused: as ``seal_for``.
    """
    return seal_for(question.key, answer, in_steps=in_steps)


def seal_for(key: VerifyKey, said: bytes, *, in_steps: bool) -> bytes:
    """Return something that only the holder of a key can open; ``in_steps``: whose length says little of it.

    Raises:
        Refused: ``MALFORMED``: a key that signs, and for which nothing can be sealed.
    """
    try:
        box = SealedBox(key.to_curve25519_public_key())
    except NaclRuntimeError:
        raise malformed("a key for which nothing can be sealed") from None
    return box.encrypt(_PADDED + pad(said) if in_steps else said)


def open_answer(signer: SigningKey, raw: bytes) -> bytes:
    """Return what was sealed for whoever asked with a key.

    Raises:
        Refused: ``OVERSIZED``; ``MALFORMED``: it was sealed for another key, or not at all, or padded in another way.
    """
    if len(raw) > MAX_SEALED_BYTES:
        raise Refused(Refusal.OVERSIZED, f"an answer of {len(raw)} bytes")
    try:
        opened: bytes = SealedBox(signer.to_curve25519_private_key()).decrypt(raw)
    except (CryptoError, ValueError, TypeError):
        raise malformed("an answer that is not sealed for us") from None
    return unpad(opened[len(_PADDED) :]) if opened.startswith(_PADDED) else opened


def _signed_with(envelope: Envelope, record: EntityRecord) -> VerifyKey:
    for key in record.verify_keys():
        try:
            verify(envelope, (key,))
        except Refused:
            continue
        return key
    raise Refused(Refusal.BAD_SIGNATURE, "nobody has signed this question")
