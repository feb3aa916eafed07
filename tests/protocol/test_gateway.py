"""Lines between daemon and gateway: whole or refused, bounded, and the same whatever carries them."""

from __future__ import annotations

import pytest

from sublet.protocol.gateway import (
    MAX_LINE_BYTES,
    GatewayAck,
    GatewayEvent,
    GatewayInput,
    GatewayLines,
    GatewayRequest,
    GatewayResult,
    MalformedGatewayMessage,
    decode_gateway,
    encode_gateway,
)


@pytest.mark.parametrize(
    "message",
    [
        GatewayRequest(request_id="gw1", delivery_mode="sync", message={"text": "a\u2028b"}),
        GatewayAck(request_id="gw1", accepted=False, reason="full"),
        GatewayResult(request_id="gw1", success=True, output=[1, None]),
        GatewayInput(request_id="in1", message="do it", session="room-1", blocking=True),
        GatewayEvent(name="seen", payload={"n": 1}),
    ],
)
def test_a_message_comes_back_as_it_went(message: GatewayRequest) -> None:
    line = encode_gateway(message)
    assert line.endswith(b"\n")
    assert line.isascii()
    assert decode_gateway(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[]",
        b"{}",
        b'{"type": "other"}',
        b'{"type": "ack", "requestId": "gw1", "accepted": "yes"}',
        b'{"type": "ack", "requestId": "../x", "accepted": true}',
        b'{"type": "input", "requestId": "a", "message": ""}',
        b'{"type": "request", "requestId": "a", "deliveryMode": "later", "message": 1}',
        b'{"type": "event", "name": "n", "payload": 90071992547409931}',
        b'{"type": "event", "name": "n", "payload": {"a": ["\\ud800"]}}',
        b'{"type": "result", "requestId": "a", "success": true, "output": "\\udfff"}',
        b"[" * 5_000,
        b" " * (MAX_LINE_BYTES + 1),
    ],
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedGatewayMessage):
        decode_gateway(line)


def test_lines_are_whole_whatever_the_pieces() -> None:
    lines = GatewayLines()
    assert lines.receive(b'{"a"') == []
    assert lines.receive(b":1}\n\n  \n{}") == [b'{"a":1}']
    assert lines.receive(b"\n") == [b"{}"]
    # Also byte by byte, in a time that grows with the length alone.
    assert [line for byte in b"[" * (MAX_LINE_BYTES // 2) + b"\n" for line in lines.receive(bytes([byte]))] != []
    with pytest.raises(MalformedGatewayMessage):
        lines.receive(b"x" * (MAX_LINE_BYTES + 1))


def test_what_is_too_large_is_not_sent() -> None:
    with pytest.raises(MalformedGatewayMessage):
        encode_gateway(GatewayEvent(name="n", payload="x" * MAX_LINE_BYTES))
