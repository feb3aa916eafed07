"""A challenge proves the key of one entity to one other, once, and says nothing anywhere else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sublet.protocol.canonical import canonical_json
from sublet.protocol.ezagent.challenge import (
    MAX_MESSAGE_BYTES,
    Challenge,
    encode_challenge,
    encode_response,
    parse_challenge,
    parse_response,
)
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.identity import EntityKind, make_record
from support.devices import make_device
from support.rooms import NOW_MS, entity_key, local_entity

ALICE, BOB, EVE = (local_entity(name, number) for number, name in enumerate(("alice", "bob", "eve")))
ASKED = Challenge(ALICE.record.entity_id, BOB.record.entity_id, bytes(32), NOW_MS)
RAW = encode_challenge(ASKED, ALICE.record, ALICE.key)
ANSWER = encode_response(ASKED, BOB.record, BOB.key)


def test_both_sides_are_proven() -> None:
    assert parse_challenge(RAW) == (ASKED, ALICE.record)
    assert parse_response(ANSWER, ASKED) == BOB.record


def test_a_key_of_a_device_answers_too() -> None:
    device = entity_key("bob's telephone")
    devices = (make_device(BOB.record.entity_id, "telephone", bytes(device.verify_key), BOB.key),)
    record = make_record("bob", EntityKind.AGENT, bytes(BOB.key.verify_key), entity_key("daemon of bob"), 2, devices)
    assert parse_response(encode_response(ASKED, record, device), ASKED) == record


@pytest.mark.parametrize(
    "other",
    [
        replace(ASKED, nonce=bytes([1] * 32)),
        replace(ASKED, time_ms=NOW_MS + 1),
        replace(ASKED, challenger=EVE.record.entity_id),
        replace(ASKED, responder=EVE.record.entity_id),
    ],
)
def test_an_answer_to_another_challenge_proves_nothing(other: Challenge) -> None:
    with pytest.raises(Refused):
        parse_response(encode_response(other, BOB.record, BOB.key), ASKED)


def test_nobody_else_answers_and_a_challenge_is_no_answer() -> None:
    for record, key in ((EVE.record, EVE.key), (BOB.record, EVE.key)):
        with pytest.raises(Refused):
            parse_response(encode_response(ASKED, record, key), ASKED)
        with pytest.raises(Refused):
            parse_challenge(encode_challenge(ASKED, record, key))
    with pytest.raises(Refused):
        parse_response(encode_challenge(ASKED, BOB.record, BOB.key), ASKED)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("challenge", "nonce"), "AA=="),
        (("challenge", "nonce"), 1),
        (("challenge", "time_ms"), True),
        (("challenge", "time_ms"), -1),
        (("challenge", "challenger"), None),
        (("challenge", "responder"), "bob"),
        (("challenge", "channel"), "ezagent/elsewhere"),
        (("challenge", "more"), "fields"),
        (("challenge",), []),
        (("record",), "none"),
        (("record", "version"), 1.5),
        (("record", "version"), 2),
        (("signature",), "x"),
    ],
)
def test_other_shapes_are_refused(path: tuple[str, ...], value: object) -> None:
    body = json.loads(RAW)
    inner = body
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(Refused):
        parse_challenge(json.dumps(body).encode())


@pytest.mark.parametrize("raw", [b"", b"[]", b"\xff", b"[" * 50_000, bytes(MAX_MESSAGE_BYTES + 1)])
def test_what_is_no_challenge_is_refused(raw: bytes) -> None:
    with pytest.raises(Refused):
        parse_challenge(raw)


def test_a_challenge_has_one_form() -> None:
    assert canonical_json(json.loads(RAW)) == RAW
