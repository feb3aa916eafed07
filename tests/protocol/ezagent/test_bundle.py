"""Records that prove themselves, and bundles."""

from __future__ import annotations

import json

import pytest
from nacl.signing import SigningKey

from sublet.protocol.ezagent.bundle import Bundle, RecordKind, decode_bundle, encode_bundle
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.identity import EntityKind, EntityRecord, make_record, parse_record
from sublet.protocol.ids import node_id
from support.devices import make_device

DAEMON, ALICE, PHONE, EVE = (SigningKey(bytes([number]) * 32) for number in range(1, 5))


def record() -> EntityRecord:
    entity = f"@alice:{node_id(bytes(DAEMON.verify_key))}"
    device = make_device(entity, "phone", bytes(PHONE.verify_key), ALICE)
    return make_record("alice", EntityKind.HUMAN, bytes(ALICE.verify_key), DAEMON, 1, (device,))


def test_a_record_proves_itself() -> None:
    made = record()
    assert parse_record(made.encode()) == made
    assert [bytes(key) for key in made.verify_keys()] == [bytes(ALICE.verify_key), bytes(PHONE.verify_key)]


@pytest.mark.parametrize("name", ["key", "domain_key", "signature"])
def test_no_key_can_be_replaced(name: str) -> None:
    body = json.loads(record().encode())
    other = json.loads(make_record("alice", EntityKind.HUMAN, bytes(EVE.verify_key), EVE, 1).encode())
    body[name] = other[name]
    with pytest.raises(Refused):
        parse_record(json.dumps(body).encode())


def test_a_device_that_the_entity_has_not_signed_is_refused() -> None:
    entity = record().entity_id
    device = make_device(entity, "phone", bytes(PHONE.verify_key), EVE)
    made = make_record("alice", EntityKind.HUMAN, bytes(ALICE.verify_key), DAEMON, 1, (device,))
    with pytest.raises(Refused):
        parse_record(made.encode())


@pytest.mark.parametrize(
    "change", [{"kind": "god"}, {"version": -1}, {"version": True}, {"devices": {}}, {"entity_id": "@system:local"}]
)
def test_a_record_of_another_shape_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(Refused):
        parse_record(json.dumps(json.loads(record().encode()) | change).encode())


def test_a_bundle_travels_unchanged() -> None:
    bundle = Bundle(((RecordKind.ENVELOPE, b"abc"), (RecordKind.CONTENT, b""), (RecordKind.IDENTITY, b"x" * 300)), True)
    raw = encode_bundle(bundle.records, more=True)
    assert decode_bundle(raw) == bundle
    assert bundle.of(RecordKind.ENVELOPE) == [b"abc"]
    for broken in (b"", raw[:-1], b"\2" + raw[1:], raw[:1] + b"\2" + raw[2:], raw[:2] + b"\x09" + raw[3:]):
        with pytest.raises(Refused):
            decode_bundle(broken)
