"""Showing that an entity is there and holds its key (ezagent 7.5; DESIGN 9.9).

Both signatures cover a domain of their own, both entities, the nonce, the time and the key of the bus that it goes
through, so neither says anything anywhere else.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.bounded_json import parse_json
from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.ezagent.errors import Refusal, Refused, malformed
from sublet.protocol.ezagent.identity import MAX_RECORD_BYTES, EntityRecord, parse_record
from sublet.protocol.ezagent.ids import EntityId, checked_entity_id
from sublet.protocol.ezagent.keys import doc_id

NONCE_BYTES: Final = 32
MAX_AGE_MS: Final = 5 * 60 * 1_000
"""How far the clocks of both may be apart; an older challenge is not answered."""
MAX_MESSAGE_BYTES: Final = 2 * MAX_RECORD_BYTES
_CHALLENGE_DOMAIN: Final = b"sublet/challenge/1\n"
_RESPONSE_DOMAIN: Final = b"sublet/challenge-response/1\n"
_SIGNATURE_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a challenger asks: ``responder`` shall sign that it has seen this ``nonce`` of ``challenger``."""

    challenger: EntityId
    responder: EntityId
    nonce: bytes
    time_ms: int

    @property
    def key(self) -> str:
        """Return the key of the bus under which the responder is asked."""
        return doc_id("challenge", entity_id=self.responder)

    def fields(self) -> dict[str, JsonValue]:
        """Return what both signatures cover."""
        return {
            "challenger": self.challenger,
            "responder": self.responder,
            "nonce": b64(self.nonce),
            "time_ms": self.time_ms,
            "channel": self.key,
        }


def encode_challenge(challenge: Challenge, record: EntityRecord, key: SigningKey) -> bytes:
    """Return a signed challenge as it travels, with who the challenger is.

    Args:
        challenge: what is asked.
        record: the challenger's, which proves itself.
        key: the challenger's.
    """
    return _encode(_CHALLENGE_DOMAIN, challenge, record, key)


def parse_challenge(raw: bytes) -> tuple[Challenge, EntityRecord]:
    """Return a challenge and who asks, which has signed it.

    Raises:
        Refused: ``OVERSIZED``, ``MALFORMED``, or ``BAD_SIGNATURE``.
    """
    challenge, record, signature = _parse(raw)
    if record.entity_id != challenge.challenger:
        raise Refused(Refusal.BAD_SIGNATURE, "a challenge with the record of somebody else")
    _check(_CHALLENGE_DOMAIN, challenge, record, signature)
    return challenge, record


def encode_response(challenge: Challenge, record: EntityRecord, key: SigningKey) -> bytes:
    """Return the signed answer to a challenge, with who the responder is."""
    return _encode(_RESPONSE_DOMAIN, challenge, record, key)


def parse_response(raw: bytes, asked: Challenge, keys: Collection[VerifyKey] | None = None) -> EntityRecord:
    """Return who has answered a challenge, shown to hold its key.

    Args:
        raw: the answer.
        asked: the challenge, as we have sent it.
        keys: those that count for the responder now; None for all of the record that it shows, which may be an old one.

    Raises:
        Refused: ``OVERSIZED``, ``MALFORMED``, or ``BAD_SIGNATURE``: it answers another challenge, or for another.
    """
    challenge, record, signature = _parse(raw)
    if challenge != asked or record.entity_id != asked.responder:
        raise Refused(Refusal.BAD_SIGNATURE, "an answer to another challenge, or of somebody else")
    _check(_RESPONSE_DOMAIN, challenge, record, signature, keys)
    return record


def _encode(domain: bytes, challenge: Challenge, record: EntityRecord, key: SigningKey) -> bytes:
    fields = challenge.fields()
    signature = key.sign(domain + canonical_json(fields)).signature
    return canonical_json({"challenge": fields, "record": json.loads(record.encode()), "signature": b64(signature)})


def _check(
    domain: bytes,
    challenge: Challenge,
    record: EntityRecord,
    signature: bytes,
    keys: Collection[VerifyKey] | None = None,
) -> None:
    message = domain + canonical_json(challenge.fields())
    if not any(_verifies(key, message, signature) for key in (record.verify_keys() if keys is None else keys)):
        raise Refused(Refusal.BAD_SIGNATURE, "a challenge, or its answer, is not signed")


def _verifies(key: VerifyKey, message: bytes, signature: bytes) -> bool:
    try:
        key.verify(message, signature)
    except BadSignatureError:
        return False
    return True


def _parse(raw: bytes) -> tuple[Challenge, EntityRecord, bytes]:
    if len(raw) > MAX_MESSAGE_BYTES:
        raise Refused(Refusal.OVERSIZED, f"a challenge of {len(raw)} bytes")
    try:
        body: JsonValue = parse_json(raw)
    except (ValueError, RecursionError):
        raise malformed("a challenge is no JSON") from None
    fields = body.get("challenge") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(fields, dict) or not isinstance(body.get("record"), dict):
        raise malformed("a challenge has another shape")
    nonce, signature = _raw(fields.get("nonce"), NONCE_BYTES), _raw(body.get("signature"), _SIGNATURE_BYTES)
    time_ms = fields.get("time_ms")
    if not isinstance(time_ms, int) or isinstance(time_ms, bool) or not 0 <= time_ms < 2**53:
        raise malformed("a challenge without a time")
    challenge = Challenge(_entity(fields.get("challenger")), _entity(fields.get("responder")), nonce, time_ms)
    if fields != challenge.fields():
        raise Refused(Refusal.BAD_SIGNATURE, "a challenge for another channel")
    try:
        record = parse_record(canonical_json(body["record"]))
    except ValueError as error:
        raise error if isinstance(error, Refused) else malformed("a record that has no canonical form") from None
    return challenge, record, signature


def _entity(value: JsonValue) -> EntityId:
    if not isinstance(value, str):
        raise malformed("a challenge without an entity")
    return checked_entity_id(value)


def _raw(value: JsonValue, size: int) -> bytes:
    found = unb64(value, size) if isinstance(value, str) else None
    if found is None:
        raise malformed("a challenge without its nonce or its signature")
    return found
