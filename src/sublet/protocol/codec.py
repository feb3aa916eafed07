"""From JSON objects to AWCP messages and back, refusing what is malformed with the code the peer should see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pydantic import ValidationError

from sublet.protocol.canonical import JsonValue, canonical_json, narrow
from sublet.protocol.errors import ErrorCode, RemoteProtocolError
from sublet.protocol.messages import AWCP_VERSION, MESSAGE_ADAPTER, Accept, Done, Error, Invite, Start

MAX_MESSAGE_BYTES = 1 << 20

AnyMessage = Invite | Accept | Start | Done | Error


def encode(message: AnyMessage) -> dict[str, JsonValue]:
    """Return ``message`` as the JSON object that goes under the ``awcp`` key."""
    return cast("dict[str, JsonValue]", message.model_dump(mode="json", exclude_none=True))


def decode(body: JsonValue) -> AnyMessage:
    """Return the message that ``body``, the object under the ``awcp`` key, stands for.

    Raises:
        RemoteProtocolError: ``DECLINED`` for another protocol version, an unknown type, a missing or malformed
            field, or a message that is too large or too deep (AWCP 4.5).
    """
    body = narrow_bounded(body)
    if not isinstance(body, dict):
        raise _refusal("an AWCP message is a JSON object", 'Send {"awcp": {…}} in one data part.')
    version = body.get("version", AWCP_VERSION)
    if version != AWCP_VERSION:
        raise _refusal(
            f"AWCP version {str(version)[:20]!r} is not spoken here", f"This side speaks version {AWCP_VERSION!r}."
        )
    try:
        return MESSAGE_ADAPTER.validate_python(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "type"
        raise _refusal(f"malformed AWCP message: {where}: {first['msg']}", "See AWCP section 4.") from None


def narrow_bounded(body: JsonValue) -> JsonValue:
    """Return ``body`` with whole floats as integers.

    Raises:
        RemoteProtocolError: it is larger than ``MAX_MESSAGE_BYTES``, too deep, or holds numbers that cannot be signed.
    """
    try:
        body = narrow(body)
        size = len(canonical_json(body))
    except (ValueError, RecursionError) as error:
        raise _refusal(f"malformed AWCP message: {error}", "See AWCP section 4.") from None
    if size > MAX_MESSAGE_BYTES:
        raise _refusal(f"message of {size} bytes", f"At most {MAX_MESSAGE_BYTES} bytes are accepted.")
    return body


def as_object(body: JsonValue) -> Mapping[str, JsonValue]:
    """Return ``body`` if it is a JSON object.

    Raises:
        RemoteProtocolError: it is something else.
    """
    if not isinstance(body, dict):
        raise _refusal("an AWCP message is a JSON object", 'Send {"awcp": {…}} in one data part.')
    return body


def _refusal(message: str, hint: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.DECLINED, message, hint)
