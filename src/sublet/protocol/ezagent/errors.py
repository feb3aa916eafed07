"""What is wrong with something that came from the wire, as one exception that never leaves messaging."""

from __future__ import annotations

from enum import StrEnum


class Refusal(StrEnum):
    """Why an update was refused; counted by these names and never shown to the peer."""

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    UNKNOWN_DOCUMENT = "unknown_document"
    UNKNOWN_SIGNER = "unknown_signer"
    BAD_SIGNATURE = "bad_signature"
    FOREIGN_CLIENT = "foreign_client"
    FOREIGN_AUTHOR = "foreign_author"
    FOREIGN_KEY = "foreign_key"
    WRONG_SHAPE = "wrong_shape"
    EQUIVOCATION = "equivocation"
    QUOTA = "quota"
    STALE = "stale"
    TOO_MANY = "too_many"
    PURGED = "purged"


class Refused(ValueError):
    """Wire input that is refused with the state unchanged.

    Args:
        refusal: why.
        detail: what exactly, for logs; holds no content of messages.
    """

    def __init__(self, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{refusal}: {detail}")
        self.refusal = refusal
        self.detail = detail


def malformed(detail: str) -> Refused:
    """Return the refusal of bytes that no writer of the protocol makes."""
    return Refused(Refusal.MALFORMED, detail)
