"""A chain of calls beside a plain A2A message: signed by the daemon that sends it, for this text and this recipient.

Whoever receives one need not know the signer. A chain can only narrow what its bearer may have done, so that there is
nothing to be gained by making one up; the signature keeps everybody on the way from taking it off a message unseen by
changing it, and from putting it to another.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Final, cast

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey
from pydantic import ValidationError

from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.chain import Chain
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.errors import ErrorCode, RemoteProtocolError
from sublet.protocol.messages import ChainExtension
from sublet.protocol.signing import KEY_BYTES, MAX_CLOCK_SKEW_SECONDS, SIGNATURE_BYTES, Nonces
from sublet.protocol.wire import Signature

CHAIN_KEY: Final = "sublet.chain"
"""Where a message's metadata has it."""
_DOMAIN: Final = b"sublet/chain/1"


def sign_chain(chain: Chain, text: str, key: SigningKey, *, recipient: str, at: int) -> dict[str, JsonValue]:
    """Return ``chain`` as the metadata of a message.

    Args:
        chain: of the call that the message is; somebody called.
        text: the message.
        key: the sending daemon's.
        recipient: fingerprint of the recipient's key, as its agent card names it.
        at: Unix time in seconds.
    """
    sent = ChainExtension.of(chain)
    if sent is None:
        raise ValueError("a chain of nobody is not sent")
    signature = Signature(
        key=b64(bytes(key.verify_key)), recipient=recipient, nonce=secrets.token_hex(16), at=at, value=""
    )
    body = _body(sent, signature)
    value = key.sign(_signed_bytes(body, text)).signature
    return _body(sent, signature.model_copy(update={"value": b64(value)}))


def verify_chain(raw: object, text: str, *, recipient: str, now: int, nonces: Nonces) -> Chain:
    """Return the chain that came with a message.

    Args:
        raw: what the message's metadata has under ``CHAIN_KEY``.
        text: the message.
        recipient: our own fingerprint.
        now: Unix time in seconds.
        nonces: replay memory.

    Raises:
        RemoteProtocolError: ``AUTH_FAILED`` where it is malformed, for somebody else, stale, replayed or forged.
    """
    if not isinstance(raw, Mapping):
        raise _denied("the chain of callers is malformed")
    try:
        sent = ChainExtension.model_validate(raw.get("chain"))
        signature = Signature.model_validate(raw.get("signature"))
    except ValidationError:
        raise _denied("the chain of callers is malformed") from None
    key, value = unb64(signature.key, KEY_BYTES), unb64(signature.value, SIGNATURE_BYTES)
    if key is None or value is None:
        raise _denied("the chain of callers is malformed")
    if signature.recipient != recipient:
        raise _denied("the chain of callers is meant for another recipient")
    if abs(now - signature.at) > MAX_CLOCK_SKEW_SECONDS:
        raise _denied("the chain of callers is too old or from the future")
    unsigned = _body(sent, signature.model_copy(update={"value": ""}))
    try:
        VerifyKey(key).verify(_signed_bytes(unsigned, text), value)
    except (BadSignatureError, ValueError):
        raise _denied("the signature does not fit the chain of callers") from None
    if not nonces.first_seen(signature.nonce, signature.at):
        raise _denied("the chain of callers was received before")
    return sent.chain()


def _body(sent: ChainExtension, signature: Signature) -> dict[str, JsonValue]:
    return {
        "chain": cast("JsonValue", sent.model_dump(mode="json")),
        "signature": cast("JsonValue", signature.model_dump(mode="json")),
    }


def _signed_bytes(body: dict[str, JsonValue], text: str) -> bytes:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return _DOMAIN + b"\n" + canonical_json({**body, "text_sha256": digest})


def _denied(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.AUTH_FAILED, message, "Send it anew, signed for this message alone.")
