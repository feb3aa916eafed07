"""Decoders of a relay, and of what a daemon is told by one."""

from __future__ import annotations

from contextlib import suppress

from fuzz.targets import _text, target
from sublet.daemon.rooms import relay_desk
from sublet.messaging.relay import authority
from sublet.protocol.errors import SubletError
from sublet.protocol.relay import attendance, fields, name_record, requests, room_statement, slot_keys
from sublet.protocol.relay.errors import RelayRefusal

NOW = 1_700_000_000.0
KEY = bytes(32)


@target(
    "relay_request",
    "protocol.relay.requests:parse_request",
    "protocol.relay.fields:parse_object",
    raises=[RelayRefusal],
)
def _request(data: bytes) -> None:
    with suppress(RelayRefusal):
        fields.parse_object(data, requests.MAX_REQUEST_BYTES, frozenset({"request", "signature"}))
    for action in requests.RequestAction:
        requests.parse_request(data, action, "relay.test", NOW)


@target("relay_statement", "protocol.relay.room_statement:parse_statement", raises=[RelayRefusal])
def _statement(data: bytes) -> None:
    found = room_statement.parse_statement(data, "relay.test")
    assert room_statement.parse_statement(found.encode(), "relay.test") == found


@target("relay_attendance", "protocol.relay.attendance:parse_attendance", raises=[RelayRefusal])
def _attendance(data: bytes) -> None:
    found = attendance.parse_attendance(data)
    assert attendance.parse_attendance(found.encode()) == found


@target("relay_name", "protocol.relay.name_record:parse_name_record", raises=[RelayRefusal])
def _name(data: bytes) -> None:
    name_record.parse_name_record(data, KEY)


@target("relay_key", raises=[])
def _key(data: bytes) -> None:
    wire = _text(data)
    for way in slot_keys.Way:
        found = slot_keys.plain_key(way, wire)
        if found is not None:
            assert slot_keys.plain_key(way, slot_keys.wire_key(way, *found)) == found
    slot_keys.slot_number(wire)


@target("relay_csr", raises=[RelayRefusal])
def _csr(data: bytes) -> None:
    authority.requested_key(_text(data)[: requests.MAX_CSR_CHARS])


@target("relay_answer", "daemon.rooms.relay_desk:parse_answer", raises=[SubletError])
def _answer(data: bytes) -> None:
    relay_desk.parse_answer(data)
