"""Signed AWCP messages: Ed25519 over domain tag, signer, recipient, nonce, time and the message itself (DESIGN 9.9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar, cast

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.canonical import JsonValue, canonical_json, narrow
from sublet.protocol.codec import encode
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.errors import ErrorCode, RemoteProtocolError
from sublet.protocol.ids import fingerprint
from sublet.protocol.messages import Accept, Done, Error, Invite, Start
from sublet.protocol.wire import Signature

AWCP_DOMAIN = b"sublet/awcp/1"
MAX_CLOCK_SKEW_SECONDS = 300
KEY_BYTES = 32
SIGNATURE_BYTES = 64

MessageT = TypeVar("MessageT", bound=Invite | Accept | Start | Done | Error)


class Nonces(Protocol):
    """Replay memory, so that no signed message is accepted twice; it outlives the process."""

    def first_seen(self, nonce: str, at: int) -> bool:
        """Tell whether ``nonce``, signed at ``at`` (Unix seconds), is new, and remember it."""


class SharedNonces(Nonces, Protocol):
    """The replay memory of all callers, of which each has a share."""

    def of(self, caller: str) -> Nonces:
        """Return the memory for what ``caller``, who is authenticated, sends; what it fills up is its own share."""


def sign_message(message: MessageT, key: SigningKey, *, recipient: str, nonce: str, at: int) -> MessageT:
    """Return ``message`` with a signature in its ``sublet`` object.

    Args:
        message: any AWCP message.
        key: the sender's Ed25519 key.
        recipient: fingerprint of the recipient's key.
        nonce: unique to this message, at least 128 random bits.
        at: Unix time in seconds.
    """
    public = bytes(key.verify_key)
    unsigned = Signature(key=b64(public), recipient=recipient, nonce=nonce, at=at, value="")
    bare = _with_signature(message, unsigned)
    value = key.sign(_signed_bytes(encode(bare))).signature
    return _with_signature(message, unsigned.model_copy(update={"value": b64(value)}))


def verify_message(
    body: Mapping[str, JsonValue], *, signer: bytes, recipient: str, now: int, nonces: Nonces | None
) -> None:
    """Check the signature in ``body`` (the object under the ``awcp`` key, as received).

    Args:
        body: the message as received.
        signer: the raw public key that must have signed it.
        recipient: our own fingerprint.
        now: Unix time in seconds.
        nonces: replay memory, or None where a replay is harmless (a re-read answer).

    Raises:
        RemoteProtocolError: ``AUTH_FAILED``: unsigned, another signer, another recipient, stale, replayed or forged.
    """
    try:
        narrowed = narrow(dict(body))
    except ValueError as error:
        raise _denied(f"the message cannot be signed: {error}", "See AWCP section 4.") from None
    body = cast("dict[str, JsonValue]", narrowed)
    extension = body.get("sublet")
    raw = extension.get("signature") if isinstance(extension, dict) else None
    if not isinstance(extension, dict) or not isinstance(raw, dict):
        raise _denied("the message is not signed", "Both sides sign their messages: pair the daemons again.")
    try:
        signature = Signature.model_validate(raw)
    except ValueError:
        raise _malformed() from None
    key, value = unb64(signature.key, KEY_BYTES), unb64(signature.value, SIGNATURE_BYTES)
    if key is None or value is None:
        raise _malformed()
    if key != signer:
        raise _denied(
            f"signed by {fingerprint(key)}, but the pinned key of this peer is {fingerprint(signer)}",
            "If its key was changed on purpose, remove the peer and pair again.",
        )
    if signature.recipient != recipient:
        raise _denied("the message is meant for another recipient", "It may be a replay from another conversation.")
    if abs(now - signature.at) > MAX_CLOCK_SKEW_SECONDS:
        raise _denied("the message is too old or from the future", "Check the clocks of both machines.")
    unsigned: dict[str, JsonValue] = {**raw, "value": ""}
    stripped = {**body, "sublet": {**extension, "signature": unsigned}}
    try:
        VerifyKey(key).verify(_signed_bytes(stripped), value)
    except (BadSignatureError, ValueError):
        raise _denied("the signature does not fit the message", "It was changed on the way.") from None
    if nonces is not None and not nonces.first_seen(signature.nonce, signature.at):
        raise _denied("the message was received before", "It may be a replay.")


def _with_signature(message: MessageT, signature: Signature) -> MessageT:
    extension = message.sublet.model_copy(update={"signature": signature})
    return cast("MessageT", message.model_copy(update={"sublet": extension}))


def _signed_bytes(body: Mapping[str, JsonValue]) -> bytes:
    return AWCP_DOMAIN + b"\n" + canonical_json(cast("dict[str, JsonValue]", dict(body)))


def _malformed() -> RemoteProtocolError:
    return _denied("the signature is malformed", "Update the peer.")


def _denied(message: str, hint: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.AUTH_FAILED, message, hint)
