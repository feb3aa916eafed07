"""Signed AWCP messages: Ed25519 over domain tag, signer, recipient, nonce, time and the message itself (DESIGN 9)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Protocol, TypeVar, cast

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.canonical import JsonValue, canonical_json, narrow
from sublet.protocol.codec import encode
from sublet.protocol.errors import ErrorCode, RemoteProtocolError
from sublet.protocol.ids import fingerprint
from sublet.protocol.messages import Accept, Done, Error, Invite, Signature, Start

AWCP_DOMAIN = b"sublet/awcp/1"
MAX_CLOCK_SKEW_SECONDS = 300

MessageT = TypeVar("MessageT", bound=Invite | Accept | Start | Done | Error)


class Verifier(Protocol):
    """Remembers nonces so that no signed message is accepted twice."""

    def first_seen(self, nonce: str, at: int) -> bool:
        """Tell whether ``nonce``, signed at ``at`` (Unix seconds), is new, and remember it."""


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
    unsigned = Signature(key=_b64(public), recipient=recipient, nonce=nonce, at=at, value="")
    bare = _with_signature(message, unsigned)
    value = key.sign(_signed_bytes(encode(bare))).signature
    return _with_signature(message, unsigned.model_copy(update={"value": _b64(value)}))


def verify_message(
    body: Mapping[str, JsonValue], *, signer: bytes, recipient: str, now: int, verifier: Verifier | None
) -> None:
    """Check the signature in ``body`` (the object under the ``awcp`` key, as received).

    Args:
        body: the message as received.
        signer: the raw public key that must have signed it.
        recipient: our own fingerprint.
        now: Unix time in seconds.
        verifier: replay memory, or None where a replay is harmless (a re-read answer).

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
        key, value = _unb64(signature.key), _unb64(signature.value)
    except ValueError:
        raise _denied("the signature is malformed", "Update the peer.") from None
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
    if verifier is not None and not verifier.first_seen(signature.nonce, signature.at):
        raise _denied("the message was received before", "It may be a replay.")


def _with_signature(message: MessageT, signature: Signature) -> MessageT:
    extension = message.sublet.model_copy(update={"signature": signature})
    return cast("MessageT", message.model_copy(update={"sublet": extension}))


def _signed_bytes(body: Mapping[str, JsonValue]) -> bytes:
    return AWCP_DOMAIN + b"\n" + canonical_json(cast("dict[str, JsonValue]", dict(body)))


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _unb64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _denied(message: str, hint: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.AUTH_FAILED, message, hint)
