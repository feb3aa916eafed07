"""What a server of offices sends, read frame by frame, and what a client sends to it."""

from __future__ import annotations

import json

import pytest

from sublet.protocol.offices.server_frames import (
    Ack,
    BadServerFrame,
    Connected,
    Ended,
    Event,
    Nothing,
    Opened,
    Packet,
    Ping,
    Refused,
    ack_frame,
    connect_frame,
    event_frame,
    read_server_frame,
)

DEEP = "[" * 80 + "]" * 80


@pytest.mark.parametrize(
    ("frame", "packet"),
    [
        ('0{"sid":"a","pingInterval":25000,"pingTimeout":20000,"maxPayload":1000000}', Opened(45.0, 1_000_000)),
        ("0{}", Opened(45.0, 1_000_000)),
        ('0{"pingInterval":1,"pingTimeout":1e9,"maxPayload":1}', Opened(121.0, 1_000)),
        ('0{"pingInterval":true,"pingTimeout":"x","maxPayload":-1}', Opened(45.0, 1_000_000)),
        ("1", Ended()),
        ("2", Ping()),
        ("3", Nothing()),
        ("6", Nothing()),
        ('40/smcp,{"sid":"x"}', Connected()),
        ("41/smcp,", Ended()),
        ('44/smcp,{"message":"no"}', Refused()),
        ('42/smcp,12["client:get_tools",{"a":1}]', Event("client:get_tools", ({"a": 1},), 12)),
        ('42/smcp,["notify:enter_office",{}]', Event("notify:enter_office", ({},), None)),
        ("42/smcp,5[1]", Event("", (), 5, readable=False)),
        ("42/smcp,5[]", Event("", (), 5, readable=False)),
        ("42/smcp,5{", Event("", (), 5, readable=False)),
        (f'42/smcp,5["a",{DEEP}]', Event("", (), 5, readable=False)),
        ('451-/smcp,7["client:tool_call",{"_placeholder":true}]', Event("", (), 7, readable=False)),
        ("43/smcp,3[true,null]", Ack(3, (True, None))),
        ("43/smcp,3[]", Ack(3, ())),
        ("43/smcp,3nonsense", Ack(3, ())),
        ('42/other,3["a"]', Nothing()),
        ('42["a"]', Nothing()),
    ],
)
def test_a_frame_is_what_its_first_characters_say(frame: str, packet: Packet) -> None:
    assert read_server_frame(frame) == packet


@pytest.mark.parametrize("frame", ["", "x", "5", "0", "0[]", "0{", "43/smcp,[true]", "\x00"])
def test_what_no_server_sends_is_refused(frame: str) -> None:
    with pytest.raises(BadServerFrame):
        read_server_frame(frame)


def test_frames_of_a_client() -> None:
    assert connect_frame("t") == '40/smcp,{"token":"t"}'
    assert (
        event_frame("server:leave_office", {"office_id": "o"}, 4)
        == '42/smcp,4["server:leave_office",{"office_id":"o"}]'
    )
    assert ack_frame(4, None) == "43/smcp,4[]"
    assert ack_frame(4, {"a": "é"}) == '43/smcp,4[{"a":"\\u00e9"}]'
    with pytest.raises(ValueError, match="JSON"):
        ack_frame(4, float("nan"))
    assert json.loads(ack_frame(4, [1]).removeprefix("43/smcp,4")) == [[1]]
