"""What the library is given to parse, within bounds and with no event that it would take for its own; what it keeps."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.office_server import socketio_server
from sublet.office_server.lines import MAX_FRAME_BYTES, Line, Lines
from sublet.office_server.socketio_server import MAX_JSON_BYTES, UNREADABLE, SocketIoServer
from sublet.offices.seats import Tell
from sublet.protocol.offices.names import NAMESPACE
from support.office_client import Ears


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        ('2/smcp,1["server:join_office",{"a":1}]', ["server:join_office", {"a": 1}]),
        ('2/smcp,1["connect",{}]', [UNREADABLE]),
        ('2/smcp,1["disconnect"]', [UNREADABLE]),
        ('2/smcp,1["*","1",{}]', [UNREADABLE]),
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


@pytest.mark.anyio
async def test_a_connection_to_a_session_that_has_ended_leaves_nothing_behind() -> None:
    server = SocketIoServer(Lines(), Ears(lets_in=True))
    await server._sio._handle_connect("over", NAMESPACE, {"token": "x"})
    assert server._manager.rooms == server._manager.pending_connect == {}


@pytest.mark.anyio
async def test_a_session_that_ends_while_it_connects_is_gone() -> None:
    lines, ears = Lines(), Ears(lets_in=True)
    server = SocketIoServer(lines, ears)
    lines.opened("s", Line())
    server._sio.environ["s"] = {}

    async def ends(*_: object) -> None:
        server._sio.environ.clear()

    server._sio.eio.send = ends
    await server._sio._handle_connect("s", NAMESPACE, {"token": "x"})
    assert len(ears.left) == 1
    assert server._manager.rooms == {}


@pytest.mark.anyio
async def test_what_can_not_be_sent_keeps_nothing_else_from_being_sent() -> None:
    server, sent = SocketIoServer(Lines(), Ears()), list[object]()

    async def emit(event: object, *_: object, **__: object) -> None:
        sent.append(event)
        if event == "first":
            raise RuntimeError("made up")

    server._sio.emit = emit
    server.carry_out([Tell(("1",), "first", None), Tell(("1",), "second", None), Tell((), "to nobody", None)])
    await server._carry_out_all()
    assert sent == ["first", "second"]


@pytest.mark.anyio
async def test_clients_are_told_the_bound_that_holds() -> None:
    options: dict[str, Any] = vars(SocketIoServer(Lines(), Ears())._sio.eio)
    assert options["max_http_buffer_size"] == MAX_FRAME_BYTES
