"""What a relay says of a name, signed by it; and what a daemon says it wants to hear."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sublet.protocol.canonical import canonical_json
from sublet.protocol.relay.attendance import MAX_CONTACTS, MAX_ROOMS, Attendance, parse_attendance
from sublet.protocol.relay.errors import RelayCode, RelayRefusal
from sublet.protocol.relay.name_record import NameRecord, parse_name_record, sign_record
from support.relay_accounts import Client

RELAY = SigningKey(bytes(32))
PUBLIC = bytes(RELAY.verify_key)
NODES = st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=16, max_size=16).map("node-{}".format)


def test_a_record_is_known_by_the_relays_key() -> None:
    made = sign_record(NameRecord("@alice:relay.test", Client("alice").public, 2, 1_000, revoked=False), RELAY)
    raw = canonical_json(made.as_json())
    assert parse_name_record(raw, PUBLIC) == made
    for changed in ({"revoked": True}, {"version": 3}, {"entity_id": "@bob:relay.test"}):
        with pytest.raises(RelayRefusal) as refused:
            parse_name_record(json.dumps(json.loads(raw) | changed).encode(), PUBLIC)
        assert refused.value.code is RelayCode.INVALID_SIGNATURE
    with pytest.raises(RelayRefusal):
        parse_name_record(raw, bytes(SigningKey.generate().verify_key))


@given(st.sets(NODES, max_size=5), st.sets(st.integers(0, 2**40), max_size=5))
def test_what_is_wanted_comes_back(contacts: set[str], times: set[int]) -> None:
    rooms = {Client("x", SigningKey(bytes(32))).room(at) for at in times}
    wants = Attendance(frozenset(contacts), frozenset(rooms))
    assert parse_attendance(wants.encode()) == wants


def test_what_is_wanted_is_bounded() -> None:
    many = Attendance(
        frozenset(
            f"node-{number:016d}".replace("0", "a").replace("1", "b").replace("8", "c").replace("9", "d")
            for number in range(MAX_CONTACTS * 4)
        )
    )
    assert len(parse_attendance(many.encode()).contacts) <= MAX_CONTACTS
    bodies: list[dict[str, object]] = [
        {"contacts": ["x"], "rooms": []},
        {"contacts": [], "rooms": ["*"]},
        {"contacts": []},
        {"contacts": 1, "rooms": 2},
    ]
    for body in bodies:
        with pytest.raises(RelayRefusal):
            parse_attendance(json.dumps(body).encode())
    with pytest.raises(RelayRefusal):
        parse_attendance(json.dumps({"contacts": [], "rooms": ["x"] * (MAX_ROOMS + 1)}).encode())
