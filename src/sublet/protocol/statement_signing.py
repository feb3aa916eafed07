"""Signing and verifying what a person decides; apart from its shape, since only few who pass it on need this."""

from __future__ import annotations

from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.canonical import canonical_json
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.signing import KEY_BYTES, MAX_CLOCK_SKEW_SECONDS, SIGNATURE_BYTES, Nonces
from sublet.protocol.statements import SignedStatement, Statement, invalid

APPROVAL_DOMAIN: Final = b"sublet/approval/1"


def sign_statement(statement: Statement, key: SigningKey) -> SignedStatement:
    """Return ``statement`` signed by the approver's key."""
    return SignedStatement(statement=statement, signature=b64(key.sign(_signed_bytes(statement)).signature))


def verify_statement(signed: SignedStatement, *, signer: bytes, daemon: str, now: float, nonces: Nonces) -> None:
    """Check who signed, for whom, when, and that it comes for the first time.

    Args:
        signed: what was sent.
        signer: the raw public key that must have signed it.
        daemon: our own node id.
        now: Unix seconds.
        nonces: replay memory.

    Raises:
        SubletError: ``APPROVAL_INVALID``.
    """
    statement, value = signed.statement, unb64(signed.signature, SIGNATURE_BYTES)
    if value is None or len(signer) != KEY_BYTES:
        raise invalid("the signature is malformed")
    try:
        VerifyKey(signer).verify(_signed_bytes(statement), value)
    except (BadSignatureError, ValueError):
        raise invalid("it is not signed by the approver's key") from None
    if statement.daemon != daemon:
        raise invalid("it is meant for another daemon")
    if abs(now - statement.at) > MAX_CLOCK_SKEW_SECONDS:
        raise invalid("it was signed too long ago")
    if not nonces.first_seen(statement.nonce, statement.at):
        raise invalid("it was used before")


def _signed_bytes(statement: Statement) -> bytes:
    return APPROVAL_DOMAIN + b"\n" + canonical_json(statement.model_dump(mode="json"))
