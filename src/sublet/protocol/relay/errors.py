"""Why a relay refuses something, as it says it to the daemon that asked."""

from __future__ import annotations

from enum import StrEnum


class RelayCode(StrEnum):
    """Codes in the answers of a relay (ezagent 7.4 names none; the first five are those of its companion texts)."""

    ENTITY_EXISTS = "ENTITY_EXISTS"
    ENTITY_NOT_FOUND = "ENTITY_NOT_FOUND"
    INVALID_ENTITY_ID = "INVALID_ENTITY_ID"
    DOMAIN_MISMATCH = "DOMAIN_MISMATCH"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    INVALID_SIGNATURE = "INVALID_SIGNATURE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    CONFLICT = "CONFLICT"
    REVOKED = "REVOKED"
    UNAVAILABLE = "UNAVAILABLE"


class RelayRefusal(Exception):
    """A relay refuses a request.

    Args:
        code: which kind.
        message: why, for people.
    """

    def __init__(self, code: RelayCode, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def invalid(message: str) -> RelayRefusal:
    """Return the refusal of what has another form than it should."""
    return RelayRefusal(RelayCode.VALIDATION_ERROR, message)
