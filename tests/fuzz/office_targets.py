"""Decoders of what clients of offices send."""

from __future__ import annotations

from contextlib import suppress

from fuzz.targets import _text, target
from sublet.app.computer import read_token
from sublet.protocol.bounded_json import BadJson, parse_counted, parse_json
from sublet.protocol.errors import SubletError
from sublet.protocol.offices import frames, requests, server_frames, version
from sublet.protocol.offices.names import ClientEvent
from sublet.protocol.offices.wire import Wire, with_text


@target("office_frame", "protocol.offices.frames:read_frame", raises=[frames.BadFrame])
def _frame(data: bytes) -> None:
    found = frames.read_frame(_text(data))
    assert found.ack is None or found.ack >= 0


@target(
    "office_server_frame",
    "protocol.offices.server_frames:read_server_frame",
    raises=[server_frames.BadServerFrame],
)
def _server_frame(data: bytes) -> None:
    found = server_frames.read_server_frame(_text(data))
    if isinstance(found, server_frames.Opened):
        assert 2 <= found.silence <= 240
    if isinstance(found, server_frames.Event):
        assert found.readable == bool(found.name) or found.name == ""


@target("office_token_file", "app.computer:read_token", raises=[SubletError])
def _token_file(data: bytes) -> None:
    assert read_token(_text(data)).secret


@target("office_version", "protocol.offices.version:parse_version", raises=[ValueError])
def _version(data: bytes) -> None:
    server = version.parse_version("0.4.0")
    refusal = version.handshake_refusal([_text(data)], server)
    assert (refusal is None) == server.serves(version.parse_version(_text(data)))


@target(
    "office_request",
    "protocol.offices.requests:read_join",
    "protocol.offices.requests:read_leave",
    "protocol.offices.requests:read_list_room",
    "protocol.offices.requests:read_update",
    "protocol.offices.requests:read_cancel",
    "protocol.offices.requests:read_relayed",
    "protocol.bounded_json:parse_counted",
    raises=[BadJson, requests.MalformedRequest],
)
def _request(data: bytes) -> None:
    given, values = parse_counted(data)
    passed_on = with_text(given, data.decode(), values)
    if isinstance(passed_on, list) and passed_on and isinstance(passed_on[-1], Wire):
        assert parse_json(passed_on[-1].text) == passed_on[-1]
    assert passed_on == given
    arguments = given if isinstance(given, list) else [given]
    for read in (
        requests.read_join,
        requests.read_leave,
        requests.read_list_room,
        requests.read_update,
        requests.read_cancel,
    ):
        with suppress(requests.MalformedRequest):
            read(arguments)
    for event in ClientEvent:
        found = requests.read_relayed(event, arguments)
        assert 0 < found.seconds <= requests.MAX_CALL_SECONDS
