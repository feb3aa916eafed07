"""What every AWCP message is made of: bounded fields, the base of all that is on the wire, and its signature."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, WithJsonSchema

from sublet.protocol.bounds import MAX_DESCRIPTION_CHARS, MAX_PROMPT_CHARS, MAX_TTL_SECONDS
from sublet.protocol.patterns import Pattern

DelegationId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Short = Annotated[str, StringConstraints(max_length=MAX_DESCRIPTION_CHARS)]
Token = Annotated[str, StringConstraints(max_length=4096)]
Path = Annotated[str, StringConstraints(max_length=4096)]
Long = Annotated[str, StringConstraints(max_length=MAX_PROMPT_CHARS)]
Ttl = Annotated[int, Field(ge=1, le=MAX_TTL_SECONDS)]
Port = Annotated[int, Field(ge=1, le=65535)]
_TIME = Pattern(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_YEARS = range(1970, 9999)
"""In any time zone they are years that can be told."""


def _with_offset(text: str) -> str:
    # ``fromisoformat`` alone takes any character between date and time, and what is told here is shown and passed on.
    if not _TIME.fullmatch(text) or datetime.fromisoformat(text).year not in _YEARS:
        raise ValueError("no time by RFC 3339 with its offset from UTC")
    return text


Timestamp = Annotated[
    str,
    StringConstraints(max_length=64),
    AfterValidator(_with_offset),
    WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 64}),
]


EntityName = Annotated[str, StringConstraints(max_length=320, pattern=r"^@[a-z0-9._-]{1,64}:[a-z0-9.-]{1,253}$")]
RoomName = Annotated[str, StringConstraints(min_length=36, max_length=36, pattern=r"^[0-9a-f-]{36}$")]


class Wire(BaseModel):
    """Base of everything on the wire: immutable, validated when built, unknown fields ignored."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore", strict=True)


class Signature(Wire):
    """Ed25519 signature over the message, bound to sender, recipient, nonce and time, against replay."""

    key: Token = Field(description="Signer's raw public key, base64")
    recipient: Token = Field(description="Recipient's key fingerprint")
    nonce: Token
    at: int = Field(description="Unix time in seconds at which the message was signed")
    value: Token = Field(description="Signature, base64")


class SubletExtension(Wire):
    """What Sublet adds to every message."""

    signature: Signature | None = None
