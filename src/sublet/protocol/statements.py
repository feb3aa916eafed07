"""What a person signs with the approver's key: one exact decision for one daemon, never anything else (DESIGN 9)."""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Final, Literal

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey
from pydantic import BaseModel, ConfigDict, Field

from sublet.protocol.canonical import canonical_json
from sublet.protocol.encoding import b64, unb64
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.signing import KEY_BYTES, MAX_CLOCK_SKEW_SECONDS, SIGNATURE_BYTES, Nonces

APPROVAL_DOMAIN: Final = b"sublet/approval/1"

Decision = Literal["approve", "issue", "set-key", "remove-key"]


class Statement(BaseModel):
    """What is signed. Empty fields are part of it, so that no signature for one decision fits another.

    ``subject`` is the approval's id, or the new public key. ``digest`` is the SHA-256 of the canonical arguments, empty
    where ``any_arguments`` widens it to those that satisfy ``when``; for a key it is that of its sealed form. ``at`` is
    Unix seconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    daemon: Annotated[str, Field(max_length=128)]
    decision: Decision
    subject: Annotated[str, Field(max_length=128)] = ""
    agent: Annotated[str, Field(max_length=64)] = ""
    tool: Annotated[str, Field(max_length=300)] = ""
    digest: Annotated[str, Field(max_length=64)] = ""
    any_arguments: bool = False
    when: dict[Annotated[str, Field(max_length=300)], Annotated[str, Field(max_length=1_000)]] = {}
    scope: Annotated[str, Field(max_length=128)] = ""
    ttl_seconds: int = 0
    max_uses: int = 0
    nonce: Annotated[str, Field(min_length=32, max_length=64)] = Field(default_factory=lambda: secrets.token_hex(16))
    at: int = Field(default_factory=lambda: int(time.time()))


class SignedStatement(BaseModel):
    """A statement with its signature, both as they travel."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    statement: Statement
    signature: Annotated[str, Field(max_length=128)]


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


def invalid(why: str) -> SubletError:
    """Return the refusal of what a person is said to have decided."""
    return SubletError(
        LocalCode.APPROVAL_INVALID, f"the approval does not hold: {why}", "Decide anew: sublet approvals"
    )


def missing() -> SubletError:
    """Return the refusal of what only an approver could allow."""
    return SubletError(
        LocalCode.APPROVER_MISSING,
        "there is no approver's key here, so nobody can approve anything",
        "A person makes one, once, in a terminal: sublet approver init",
    )


def _signed_bytes(statement: Statement) -> bytes:
    return APPROVAL_DOMAIN + b"\n" + canonical_json(statement.model_dump(mode="json"))
