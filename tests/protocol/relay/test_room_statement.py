"""Statements of rooms: who may make them, in which order, and that the room's id says who has opened it."""

from __future__ import annotations

import json

import pytest

from sublet.protocol.relay.errors import RelayCode, RelayRefusal
from sublet.protocol.relay.room_statement import MAX_HOMES, RoomStatement, check_follows, parse_statement
from support.relay_accounts import DOMAIN, Client

ALICE, BOB, EVE = Client("alice"), Client("bob"), Client("eve")
ROOM = ALICE.room()


def code_of(raw: bytes, relay: str = DOMAIN) -> RelayCode:
    with pytest.raises(RelayRefusal) as refused:
        parse_statement(raw, relay)
    return refused.value.code


def follows(statement: RoomStatement, before: RoomStatement | None) -> RelayCode | None:
    try:
        check_follows(statement, before)
    except RelayRefusal as refusal:
        return refusal.code
    return None


def test_a_statement_comes_back_as_it_was_signed() -> None:
    made = ALICE.states(ROOM, [ALICE, BOB], 3, readers=[EVE])
    assert parse_statement(made.encode(), DOMAIN) == made
    assert made.members == {ALICE.node, BOB.node, EVE.node}
    assert code_of(made.encode(), "other.test") is RelayCode.DOMAIN_MISMATCH


@pytest.mark.parametrize("field", ["version", "homes", "readers", "managers", "signer"])
def test_nothing_of_it_can_be_changed(field: str) -> None:
    body = json.loads(ALICE.states(ROOM, [ALICE, BOB]).encode())
    other = json.loads(EVE.states(ROOM, [EVE], 2, creator=ALICE, readers=[BOB], managers=[EVE]).encode())
    body[field] = other[field]
    assert code_of(json.dumps(body).encode()) is RelayCode.INVALID_SIGNATURE


def test_nobody_states_a_room_as_if_they_had_opened_it() -> None:
    assert code_of(EVE.states(ROOM, [EVE]).encode()) is RelayCode.VALIDATION_ERROR
    as_alice = EVE.states(ROOM, [EVE], creator=ALICE, managers=[EVE])
    assert parse_statement(as_alice.encode(), DOMAIN) == as_alice
    assert follows(as_alice, None) is RelayCode.PERMISSION_DENIED


def test_who_may_state_it_is_told_by_the_statement_before() -> None:
    first = ALICE.states(ROOM, [ALICE, BOB])
    assert follows(first, None) is None
    assert follows(first, first) is RelayCode.CONFLICT
    given = ALICE.states(ROOM, [ALICE, BOB], 2, managers=[BOB])
    assert follows(given, first) is None
    assert follows(BOB.states(ROOM, [BOB], 2, creator=ALICE, managers=[BOB]), first) is RelayCode.PERMISSION_DENIED
    assert follows(BOB.states(ROOM, [BOB], 3, creator=ALICE, managers=[BOB]), given) is None
    assert follows(ALICE.states(ROOM, [ALICE], 4), given) is RelayCode.PERMISSION_DENIED


def test_its_lists_are_in_order_bounded_and_of_nodes_alone() -> None:
    body = json.loads(ALICE.states(ROOM, [ALICE, BOB]).encode())
    for homes in (
        body["homes"][::-1],
        body["homes"] * 2,
        ["../x"],
        ["@human:x"],
        [f"node-{'a' * 16}"] * (MAX_HOMES + 1),
        "x",
        [1],
    ):
        assert code_of(json.dumps(body | {"homes": homes}).encode()) is RelayCode.VALIDATION_ERROR
    assert code_of(json.dumps(body | {"more": 1}).encode()) is RelayCode.VALIDATION_ERROR
