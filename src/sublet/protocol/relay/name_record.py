"""What a relay says of a name: whose key it stands for, signed by the relay (ezagent 7.4).

It is an alias of an identity that proves itself, and nothing more: whoever has pinned a key believes that, and a relay
that says otherwise is found out by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol import ids
from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.encoding import b64
from sublet.protocol.relay.errors import RelayCode, RelayRefusal, invalid
from sublet.protocol.relay.fields import bytes_of, number_of, parse_object, text_of
from sublet.protocol.relay.requests import KEY_BYTES, SIGNATURE_BYTES

MAX_RECORD_BYTES: Final = 4 << 10
_DOMAIN: Final = b"sublet/relay-name/1\n"
_FIELDS: Final = frozenset({"entity_id", "key", "version", "registered_at", "revoked", "signature"})


@dataclass(frozen=True, slots=True)
class NameRecord:
    """A name at a relay.

    Args:
        entity_id: ``@name:domain``.
        key: the raw Ed25519 public key of the daemon that has registered it.
        version: grows with every change.
        registered_at: Unix seconds.
        revoked: whether it stands for nobody any more.
        signature: of the relay's key.
    """

    entity_id: str
    key: bytes
    version: int
    registered_at: int
    revoked: bool
    signature: bytes = b""

    @property
    def node_id(self) -> str:
        """Node id of the daemon's key."""
        return ids.node_id(self.key)

    def fields(self) -> dict[str, JsonValue]:
        """Return what is signed."""
        return {
            "entity_id": self.entity_id,
            "key": b64(self.key),
            "version": self.version,
            "registered_at": self.registered_at,
            "revoked": self.revoked,
        }

    def as_json(self) -> dict[str, JsonValue]:
        """Return it as it travels."""
        return {**self.fields(), "signature": b64(self.signature)}


def sign_record(record: NameRecord, key: SigningKey) -> NameRecord:
    """Return the record, signed by the relay's key."""
    signature = key.sign(_DOMAIN + canonical_json(record.fields())).signature
    return NameRecord(record.entity_id, record.key, record.version, record.registered_at, record.revoked, signature)


def parse_name_record(raw: bytes, relay_key: bytes) -> NameRecord:
    """Return a record that the relay's key has signed.

    Raises:
        RelayRefusal: ``VALIDATION_ERROR`` or ``INVALID_SIGNATURE``.
    """
    body = parse_object(raw, MAX_RECORD_BYTES, _FIELDS)
    revoked = body["revoked"]
    if not isinstance(revoked, bool):
        raise invalid("revoked is neither true nor false")
    record = NameRecord(
        text_of(body, "entity_id"),
        bytes_of(body, "key", KEY_BYTES),
        number_of(body, "version"),
        number_of(body, "registered_at"),
        revoked,
        bytes_of(body, "signature", SIGNATURE_BYTES),
    )
    try:
        VerifyKey(relay_key).verify(_DOMAIN + canonical_json(record.fields()), record.signature)
    except (BadSignatureError, ValueError):
        raise RelayRefusal(RelayCode.INVALID_SIGNATURE, "the relay has not signed the record") from None
    return record
