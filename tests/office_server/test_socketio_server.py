"""What the library is given to parse: within bounds, and no event that it would take for its own."""

from __future__ import annotations

import pytest

from sublet.office_server import socketio_server
from sublet.office_server.socketio_server import MAX_JSON_BYTES, UNREADABLE


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        ('2/smcp,1["server:join_office",{"a":1}]', ["server:join_office", {"a": 1}]),
        ('2/smcp,1["connect",{}]', [UNREADABLE]),
        ('2/smcp,1["disconnect"]', [UNREADABLE]),
        ("2/smcp,1[]", [UNREADABLE]),
        ("2/smcp,1[7]", [UNREADABLE]),
        ('2/smcp,1{"a":1}', [UNREADABLE]),
        ("2/smcp,1", [UNREADABLE]),
        ('3/smcp,1{"a":1}', [UNREADABLE]),
        ("3/smcp,1[]", []),
        ('3/smcp,1["connect"]', ["connect"]),
        ('0/smcp,{"token":"x"}', {"token": "x"}),
        ("2/smcp,1" + "[" * 1_000, [UNREADABLE]),
        ('2/smcp,1["' + "x" * MAX_JSON_BYTES + '"]', [UNREADABLE]),
    ],
)
def test_packets_of_clients(frame: str, data: object) -> None:
    assert socketio_server._Packet(encoded_packet=frame).data == data
