"""Signed requests of an account: registration, renewal, rotation and revocation (ezagent 7.4).

A request is signed by the account's Ed25519 key over a domain of its own, the relay, the action, the time and a nonce,
so that it counts once, at one relay, for one thing. Its certificate request is signed by the key of the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.encoding import b64
from sublet.protocol.relay.errors import RelayCode, RelayRefusal, invalid
from sublet.protocol.relay.fields import bytes_of, number_of, parse_object, text_of

MAX_REQUEST_BYTES: Final = 16 << 10
MAX_AGE_SECONDS: Final = 300
"""How far the clocks of both may be apart."""
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 16
SIGNATURE_BYTES: Final = 64
MAX_CSR_CHARS: Final = 4_096
_DOMAIN: Final = b"sublet/relay-request/1\n"
_ROTATION_DOMAIN: Final = b"sublet/relay-rotation/1\n"
_OUTER: Final = frozenset({"request", "signature"})
_INNER: Final = frozenset({"action", "relay", "key", "name", "csr", "new_key", "new_signature", "at", "nonce"})


class RequestAction(StrEnum):
    """What an account asks for."""

    REGISTER = "register"
    RENEW = "renew"
    ROTATE = "rotate"
    REVOKE = "revoke"


@dataclass(frozen=True, slots=True)
class AccountRequest:
    """A request, whose signature was checked where it came from elsewhere.

    Args:
        action: what is asked for.
        relay: the relay's domain.
        key: the account's raw public key, which has signed it.
        name: of the account.
        csr: certificate request in PEM; empty where no certificate is asked for.
        at: Unix seconds.
        nonce: random bytes, by which it counts once.
        new_key: the raw public key that takes the place of ``key``; empty where it stays.
        new_signature: of that key over the rotation.
    """

    action: RequestAction
    relay: str
    key: bytes
    name: str
    csr: str
    at: int
    nonce: bytes
    new_key: bytes = b""
    new_signature: bytes = b""

    def fields(self) -> dict[str, JsonValue]:
        """Return what is signed."""
        return {
            "action": str(self.action),
            "relay": self.relay,
            "key": b64(self.key),
            "name": self.name,
            "csr": self.csr,
            "at": self.at,
            "nonce": b64(self.nonce),
            "new_key": b64(self.new_key) if self.new_key else "",
            "new_signature": b64(self.new_signature) if self.new_signature else "",
        }


def encode_request(request: AccountRequest, key: SigningKey) -> bytes:
    """Return a request as it travels, signed by the account's key."""
    fields = request.fields()
    signature = key.sign(_DOMAIN + canonical_json(fields)).signature
    return canonical_json({"request": fields, "signature": b64(signature)})


def parse_request(raw: bytes, action: RequestAction, relay: str, now: float) -> AccountRequest:
    """Return a request that its key has signed, for this action of this relay, now.

    Whether it comes for the first time is for the relay to find out by its nonce.

    Args:
        raw: the request as it came.
        action: where it came.
        relay: our domain.
        now: Unix seconds.

    Raises:
        RelayRefusal: ``VALIDATION_ERROR``, ``INVALID_SIGNATURE``, or ``DOMAIN_MISMATCH`` for another relay's.
    """
    body = parse_object(raw, MAX_REQUEST_BYTES, _OUTER)
    fields = body["request"]
    if not isinstance(fields, dict) or fields.keys() != _INNER:
        raise invalid("the request has other fields than it should")
    signature = bytes_of(body, "signature", SIGNATURE_BYTES)
    new = fields["new_key"] != ""
    csr = fields["csr"]
    if not isinstance(csr, str) or len(csr) > MAX_CSR_CHARS or not csr.isascii():
        raise invalid("csr is no certificate request")
    request = AccountRequest(
        action,
        text_of(fields, "relay"),
        bytes_of(fields, "key", KEY_BYTES),
        text_of(fields, "name"),
        csr,
        number_of(fields, "at"),
        bytes_of(fields, "nonce", NONCE_BYTES),
        bytes_of(fields, "new_key", KEY_BYTES) if new else b"",
        bytes_of(fields, "new_signature", SIGNATURE_BYTES) if new else b"",
    )
    if request.fields() != fields:
        raise RelayRefusal(RelayCode.INVALID_SIGNATURE, "it asks for something else")
    if request.relay != relay:
        raise RelayRefusal(RelayCode.DOMAIN_MISMATCH, f"it is meant for another relay than {relay}")
    if not _verifies(request.key, _DOMAIN + canonical_json(fields), signature):
        raise RelayRefusal(RelayCode.INVALID_SIGNATURE, "it is not signed by the account's key")
    if abs(now - request.at) > MAX_AGE_SECONDS:
        raise RelayRefusal(RelayCode.INVALID_SIGNATURE, "it was signed too long ago, or a clock is wrong")
    if new and not _verifies(
        request.new_key, _rotation(request.relay, request.key, request.new_key), signature=request.new_signature
    ):
        raise RelayRefusal(RelayCode.INVALID_SIGNATURE, "the new key has not signed that it takes the old one's place")
    return request


def sign_rotation(relay: str, old: bytes, new: SigningKey) -> bytes:
    """Return the signature of a new key that it takes the place of an old one at a relay."""
    return new.sign(_rotation(relay, old, bytes(new.verify_key))).signature


def _rotation(relay: str, old: bytes, new: bytes) -> bytes:
    return _ROTATION_DOMAIN + canonical_json({"relay": relay, "old": b64(old), "new": b64(new)})


def _verifies(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        VerifyKey(key).verify(message, signature)
    except (BadSignatureError, ValueError):
        return False
    return True
