"""The messages between the daemon and a gateway, one JSON object per line, whatever carries them (SuperAgent 8)."""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from sublet.protocol.bounded_json import parse_json
from sublet.protocol.bounds import MAX_PROMPT_CHARS
from sublet.protocol.canonical import narrow
from sublet.protocol.lines import LineCutter, LineTooLong
from sublet.protocol.text import clean_line

MAX_LINE_BYTES: Final = 1 << 20
MAX_VALUES: Final = 20_000
"""JSON values of one message."""

DeliveryMode: TypeAlias = Literal["sync", "async"]
MessageId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,99}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_PROMPT_CHARS)]


class MalformedGatewayMessage(ValueError):
    """What came is no message of this protocol."""


class _Message(BaseModel):
    model_config = ConfigDict(
        defer_build=True, frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True
    )


class GatewayRequest(_Message):
    """The daemon gives a gateway something to deliver; answered by an ack, and where it is ``sync`` by a result too."""

    type: Literal["request"] = "request"
    request_id: MessageId
    delivery_mode: DeliveryMode
    message: JsonValue


class GatewayAck(_Message):
    """A request or an input was taken, or was not, for ``reason``."""

    type: Literal["ack"] = "ack"
    request_id: MessageId
    accepted: bool
    reason: Annotated[str, StringConstraints(max_length=1_000)] = ""


class GatewayResult(_Message):
    """What came of a request or an input."""

    type: Literal["result"] = "result"
    request_id: MessageId
    success: bool
    output: JsonValue = None
    error: Annotated[str, StringConstraints(max_length=10_000)] = ""


class GatewayInput(_Message):
    """A gateway brings something for the supervisor; with ``blocking`` it waits for the result.

    ``session`` names the conversation that it goes on with; without it that is the one of its ``sender``.
    """

    type: Literal["input"] = "input"
    request_id: MessageId
    message: Text
    session: Name | None = None
    sender: Name | None = None
    target: Name | None = None
    blocking: bool = False


class GatewayEvent(_Message):
    """Something happened that nobody has to answer."""

    type: Literal["event"] = "event"
    name: Name
    payload: JsonValue = None


class GatewayPing(_Message):
    """The daemon asks whether a gateway is well."""

    type: Literal["ping"] = "ping"
    request_id: MessageId


class GatewayPong(_Message):
    """It is; or it is not, as ``detail`` says."""

    type: Literal["pong"] = "pong"
    request_id: MessageId
    ok: bool = True
    detail: Annotated[str, StringConstraints(max_length=1_000)] = ""


AnyGatewayMessage: TypeAlias = (
    GatewayRequest | GatewayAck | GatewayResult | GatewayInput | GatewayEvent | GatewayPing | GatewayPong
)
_ADAPTER: TypeAdapter[AnyGatewayMessage] = TypeAdapter(Annotated[AnyGatewayMessage, Field(discriminator="type")])


def encode_gateway(message: AnyGatewayMessage) -> bytes:
    """Return ``message`` as a line, its end included; ASCII, so that no reader takes a character for a line's end.

    Raises:
        MalformedGatewayMessage: it is too large.
    """
    line = json.dumps(message.model_dump(mode="json", by_alias=True), separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise MalformedGatewayMessage(f"a message has at most {MAX_LINE_BYTES} bytes")
    return line


def decode_gateway(line: bytes) -> AnyGatewayMessage:
    """Return the message of a line.

    Raises:
        MalformedGatewayMessage: it is none.
    """
    if len(line) > MAX_LINE_BYTES:
        raise MalformedGatewayMessage(f"a message has at most {MAX_LINE_BYTES} bytes")
    try:
        value = narrow(parse_json(line, max_bytes=MAX_LINE_BYTES, values=MAX_VALUES))
        return _ADAPTER.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "type"
        raise MalformedGatewayMessage(clean_line(f"{where}: {first['msg']}", 300)) from None
    except ValueError as error:
        raise MalformedGatewayMessage(clean_line(str(error), 300)) from None


class GatewayLines:
    """Bytes in, whole lines out."""

    def __init__(self) -> None:
        self._lines = LineCutter(MAX_LINE_BYTES)

    def receive(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends and without empty ones.

        Raises:
            MalformedGatewayMessage: a line is too long.
        """
        try:
            return self._lines.feed(data)
        except LineTooLong as error:
            raise MalformedGatewayMessage(str(error)) from None
