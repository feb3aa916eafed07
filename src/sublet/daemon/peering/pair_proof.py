"""What both sides of a pairing prove: that they know the link's token, and that each has the key it shows (DESIGN 9.9).

Either direction has a domain tag of its own. The request is bound to the key and the certificate that the link names;
the reply is bound to the very request, and so to both identities, the caller's nonce and the channel.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import asdict, replace

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.daemon.ports.given_to_a2a import PairReply, PairRequest
from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.encoding import b64, unb64

REQUEST_DOMAIN = b"sublet/pair/request/1\n"
REPLY_DOMAIN = b"sublet/pair/reply/1\n"
_KEY_DOMAIN = b"sublet/pair/key/1\n"
_ID_DOMAIN = b"sublet/pair/id/1\n"


def id_hash(token_id: str) -> bytes:
    """Return what the database knows a token by."""
    return hashlib.sha256(_ID_DOMAIN + token_id.encode()).digest()


def mac_key(secret: str) -> bytes:
    """Return the HMAC key that stands for a token's secret; the secret itself is kept nowhere."""
    return hashlib.sha256(_KEY_DOMAIN + secret.encode()).digest()


def prove_request(request: PairRequest, key: SigningKey, token: bytes, *, recipient: str, channel: str) -> PairRequest:
    """Return ``request`` with proof and signature.

    Args:
        request: with both empty.
        key: the caller's.
        token: as ``mac_key`` returns it.
        recipient: fingerprint of the key that must answer.
        channel: fingerprint of the certificate that the answering side must show, empty without TLS of its own.
    """
    said = _request_bytes(request, recipient, channel)
    return replace(request, proof=_mac(token, said), signature=b64(key.sign(said).signature))


def request_holds(request: PairRequest, token: bytes, *, recipient: str, channel: str) -> bool:
    """Tell whether proof and signature of ``request`` are right."""
    return _holds(_request_bytes(request, recipient, channel), request, token)


def prove_reply(reply: PairReply, request: PairRequest, key: SigningKey, token: bytes, *, channel: str) -> PairReply:
    """Return ``reply`` to ``request`` with proof and signature; arguments as for ``prove_request``."""
    said = _reply_bytes(reply, request, channel)
    return replace(reply, proof=_mac(token, said), signature=b64(key.sign(said).signature))


def reply_holds(reply: PairReply, request: PairRequest, token: bytes, *, channel: str) -> bool:
    """Tell whether ``reply`` answers this very ``request`` with the right proof and signature."""
    return _holds(_reply_bytes(reply, request, channel), reply, token)


def _holds(said: bytes, message: PairRequest | PairReply, token: bytes) -> bool:
    if not hmac.compare_digest(_mac(token, said).encode(), message.proof.encode()):
        return False
    public, signature = unb64(message.public_key, 32), unb64(message.signature, 64)
    if public is None or signature is None:
        return False
    try:
        VerifyKey(public).verify(said, signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def _request_bytes(request: PairRequest, recipient: str, channel: str) -> bytes:
    return REQUEST_DOMAIN + canonical_json({**_bare(request), "recipient": recipient, "channel": channel})


def _reply_bytes(reply: PairReply, request: PairRequest, channel: str) -> bytes:
    asked = hashlib.sha256(canonical_json({**_bare(request), "proof": request.proof})).hexdigest()
    return REPLY_DOMAIN + canonical_json({**_bare(reply), "request": asked, "channel": channel})


def _bare(message: PairRequest | PairReply) -> dict[str, JsonValue]:
    fields: dict[str, JsonValue] = asdict(message)
    del fields["proof"], fields["signature"]
    return fields


def _mac(token: bytes, said: bytes) -> str:
    return b64(hmac.digest(token, said, "sha256"))
