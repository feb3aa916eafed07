"""The header by which a request over plain HTTP proves whose it is, where no TLS does (``docs/federation-wire.md``).

It is signed over the method, the path, the recipient, the time and the hash of the body, so that who listens can repeat
nothing but the same request to the same node for some minutes: an event that comes again is known by its id.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.canonical import canonical_json
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.ids import fingerprint
from sublet.protocol.patterns import Pattern
from sublet.protocol.signing import KEY_BYTES, MAX_CLOCK_SKEW_SECONDS, SIGNATURE_BYTES

SCHEME: Final = "Sublet-Node"
MAX_PROOF_CHARS: Final = 512
_DOMAIN: Final = b"sublet/federation-request/1\n"
_HASH_BYTES: Final = 32
_FORM = Pattern(
    r'Sublet-Node key="([A-Za-z0-9+/]{43}=)", at="([0-9]{1,15})", body="([A-Za-z0-9+/]{43}=)", '
    r'sig="([A-Za-z0-9+/]{86}==)"\Z'
)


@dataclass(frozen=True, slots=True)
class RequestProof:
    """What a header says; nobody has looked at its signature yet.

    Args:
        public_key: raw Ed25519 key of who asks.
        at_ms: Unix milliseconds.
        body_hash: SHA-256 of the body.
    """

    public_key: bytes
    at_ms: int
    body_hash: bytes
    _signature: bytes

    @property
    def fingerprint(self) -> str:
        """Of the key."""
        return fingerprint(self.public_key)

    def proves(self, method: str, path: str, recipient: str, now: float) -> bool:
        """Tell whether the key has signed such a request just now.

        Args:
            method: of the request.
            path: of the request, without a query.
            recipient: fingerprint of our own key.
            now: Unix seconds.
        """
        if abs(now - self.at_ms / 1000) > MAX_CLOCK_SKEW_SECONDS:
            return False
        said = _said(method, path, recipient, self.at_ms, self.body_hash)
        try:
            VerifyKey(self.public_key).verify(said, self._signature)
        except (BadSignatureError, ValueError):
            return False
        return True

    def covers(self, body: bytes) -> bool:
        """Tell whether it was signed for this body."""
        return hashlib.sha256(body).digest() == self.body_hash


def prove(key: SigningKey, method: str, path: str, recipient: str, body: bytes, now: float) -> str:
    """Return the value of ``Authorization`` for one request.

    Args:
        key: ours.
        method: of the request.
        path: of the request, without a query.
        recipient: fingerprint of the key of the node that is asked.
        body: all of it.
        now: Unix seconds.
    """
    at_ms, digest = int(now * 1000), hashlib.sha256(body).digest()
    signature = key.sign(_said(method, path, recipient, at_ms, digest)).signature
    return f'{SCHEME} key="{b64(bytes(key.verify_key))}", at="{at_ms}", body="{b64(digest)}", sig="{b64(signature)}"'


def read_proof(header: str) -> RequestProof | None:
    """Return what a header says; None where it is none, or says a thing in two ways."""
    found = _FORM.fullmatch(header) if len(header) <= MAX_PROOF_CHARS else None
    if found is None:
        return None
    key, at_ms, digest, signature = found.groups()
    raw = unb64(key, KEY_BYTES), unb64(digest, _HASH_BYTES), unb64(signature, SIGNATURE_BYTES)
    if raw[0] is None or raw[1] is None or raw[2] is None or str(int(at_ms)) != at_ms:
        return None
    return RequestProof(raw[0], int(at_ms), raw[1], raw[2])


def _said(method: str, path: str, recipient: str, at_ms: int, digest: bytes) -> bytes:
    return _DOMAIN + canonical_json(
        {"at": at_ms, "body": b64(digest), "method": method, "path": path, "recipient": recipient}
    )
