"""What a person signs with the approver's key: one exact decision for one daemon, never anything else (DESIGN 9.2)."""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from sublet.protocol.errors import LocalCode, SubletError

Decision = Literal["approve", "issue", "set-key", "remove-key"]


class Statement(BaseModel):
    """What is signed. Empty fields are part of it, so that no signature for one decision fits another.

    ``subject`` is the approval's id, or the new public key. ``digest`` is the SHA-256 of the canonical arguments, empty
    where ``any_arguments`` widens it to those that satisfy ``when``; for a key it is that of its sealed form. ``at`` is
    Unix seconds.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

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

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    statement: Statement
    signature: Annotated[str, Field(max_length=128)]


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
