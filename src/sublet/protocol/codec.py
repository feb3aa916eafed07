"""From JSON objects to AWCP messages and back, refusing what is malformed with the code the peer should see."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from pydantic import ValidationError

from sublet.protocol.canonical import JsonValue, narrow
from sublet.protocol.errors import ErrorCode, RemoteProtocolError
from sublet.protocol.messages import AWCP_VERSION, MESSAGE_ADAPTER, Accept, Done, Error, Invite, Start
from sublet.protocol.text import clean_line

MAX_MESSAGE_BYTES = 1 << 20
MAX_REASON_CHARS = 300

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
    _check_version(body)
    try:
        return MESSAGE_ADAPTER.validate_python(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "type"
        # pydantic repeats an unknown type in its message, and that is the peer's text
        reason = clean_line(f"{where}: {first['msg']}", MAX_REASON_CHARS)
        raise _refusal(f"malformed AWCP message: {reason}", "See AWCP section 4.") from None


def narrow_bounded(body: JsonValue) -> JsonValue:
    """Return ``body`` with whole floats as integers.

    Raises:
        RemoteProtocolError: ``DECLINED``: larger than ``MAX_MESSAGE_BYTES``, too deep, or with numbers or text that
            JSON implementations do not agree on (not finite, beyond 2**53, lone surrogates).
    """
    try:
        body = narrow(body)
        size = len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())
    except UnicodeEncodeError:
        raise _refusal("malformed AWCP message: text that is not Unicode", "See AWCP section 4.") from None
    except ValueError as error:
        raise _refusal(f"malformed AWCP message: {error}", "See AWCP section 4.") from None
    if size > MAX_MESSAGE_BYTES:
        raise _refusal(f"message of {size} bytes", f"At most {MAX_MESSAGE_BYTES} bytes are accepted.")
    return body


def _check_version(body: Mapping[str, JsonValue]) -> None:
    """Refuse every version but ours. Only INVITE has to name one (AWCP 4.1)."""
    if "version" not in body:
        if body.get("type") == "INVITE":
            raise _refusal("an INVITE names its AWCP version", f"This side speaks version {AWCP_VERSION!r}.")
        return
    version = body["version"]
    if version != AWCP_VERSION:
        shown = clean_line(str(version), 20)
        raise _refusal(f"AWCP version {shown!r} is not spoken here", f"This side speaks version {AWCP_VERSION!r}.")


def _refusal(message: str, hint: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.DECLINED, message, hint)
