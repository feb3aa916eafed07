"""What the server itself answers: flat errors, and results of tool calls that no Computer has answered."""

from __future__ import annotations

from typing import Final

from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.names import (
    BAD_REQUEST,
    BLOB_NOT_ACCESSIBLE,
    BLOB_WRITE_FAILED,
    NOT_FOUND,
    ClientEvent,
)

FORBIDDEN: Final = 403
TIMED_OUT: Final = 408
TOO_MANY: Final = 429
BROKEN: Final = 500

Answer = dict[str, JsonValue]


def computer_not_found(computer: str) -> Answer:
    """Return what is said of a Computer that is not in the Agent's office, wherever else it may be."""
    return {
        "code": NOT_FOUND,
        "message": f"Computer with name '{computer}' not found",
        "details": {"computer_name": computer},
    }


def flat_error(code: int, message: str) -> Answer:
    """Return a flat error of the protocol."""
    return {"code": code, "message": message}


def malformed(message: str) -> Answer:
    """Return what is said of a request that can't be read."""
    return flat_error(BAD_REQUEST, f"Malformed request: {message}")


def failed(event: ClientEvent, code: int, reason: str, message: str) -> Answer:
    """Return why a request to a Computer has no answer of that Computer, in the form that its Agent reads.

    Args:
        event: the request.
        code: of the error, where the event has no form of its own.
        reason: of codes 4018 and 4019, such as ``forbidden``.
        message: for the Agent.
    """
    match event:
        case ClientEvent.TOOL_CALL:
            meta: dict[str, JsonValue] = {"a2c_timeout": True} if code == TIMED_OUT else {}
            return {
                "content": [{"type": "text", "text": message}],
                "isError": True,
                **({"meta": meta} if meta else {}),
            }
        case ClientEvent.GET_BLOB:
            return {"code": BLOB_NOT_ACCESSIBLE, "message": message, "details": {"reason": reason}}
        case ClientEvent.PUT_BLOB:
            return {"code": BLOB_WRITE_FAILED, "message": message, "details": {"reason": reason}}
        case _:
            return flat_error(code, message)
