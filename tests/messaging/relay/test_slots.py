"""Slots over random histories: none is anybody's before the last certificate of whoever had it has ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.messaging.relay.slots import REST_SECONDS, SlotRow, Slots, SlotState
from sublet.protocol.relay.errors import RelayCode, RelayRefusal

NAMES = "abcdef"
STEPS = st.lists(
    st.tuples(st.sampled_from(["assign", "forget", "again"]), st.sampled_from(NAMES), st.integers(0, 2_000)),
    max_size=60,
)


@given(STEPS, st.integers(1, 4))
def test_no_slot_is_given_again_before_its_last_certificate_has_ended(
    steps: list[tuple[str, str, int]], count: int
) -> None:
    slots, now = Slots(count), 0
    kept: dict[int, SlotRow] = {}
    certificates: list[tuple[int, str, int]] = []
    for what, name, number in steps:
        now += number
        if what == "again":  # a restart of the relay loses nothing that counts
            slots = Slots(count, kept.values())
        elif what == "forget":
            row = slots.forget(name)
            if row is not None:
                kept[row.number] = row
        else:
            until = now + number
            living = {slot for slot, _, end in certificates if end + REST_SECONDS >= now}
            if len(living) == count and (slots.of(name) is None or slots.of(name) not in living):
                with pytest.raises(RelayRefusal) as refusal:
                    slots.assign(name, until, now)
                assert refusal.value.code is RelayCode.QUOTA_EXCEEDED
                continue
            row = slots.assign(name, until, now)
            for slot, other, end in certificates:
                if slot == row.number and other != name:
                    assert end + REST_SECONDS < now, "a certificate of somebody else still has this name"
            kept = {number: one for number, one in kept.items() if one.account != name}
            kept[row.number] = row
            certificates.append((row.number, name, until))
            assert slots.of(name) == row.number
            assert slots.account(row.number) == name
        owners = [slots.account(number) for number in range(count)]
        had = [owner for owner in owners if owner is not None]
        assert len(set(had)) == len(had) == slots.taken()


def test_a_slot_stays_an_accounts_while_it_is_renewed_and_never_gets_a_shorter_end() -> None:
    slots = Slots(2)
    first = slots.assign("alice", 1_000, 0)
    assert slots.assign("alice", 500, 10) == SlotRow(first.number, SlotState.TAKEN, "alice", 1_000)
    assert slots.assign("bob", 10, 10).number != first.number
    with pytest.raises(RelayRefusal):
        slots.next_for("carol", 10)
    assert slots.state(first.number) is SlotState.TAKEN
    assert slots.forget("nobody") is None


def test_a_name_that_was_not_heard_of_gives_its_slot_away_and_gets_another_one() -> None:
    slots = Slots(1)
    slots.assign("alice", 100, 0)
    later = 101 + REST_SECONDS
    assert slots.assign("bob", later + 9, later).account == "bob"
    assert slots.of("alice") is None
    with pytest.raises(RelayRefusal):
        slots.next_for("alice", later)


def test_fewer_slots_after_a_restart_give_none_away_that_is_beyond() -> None:
    slots = Slots(1, [SlotRow(5, SlotState.TAKEN, "alice", 100)])
    assert slots.account(5) == "alice"
    assert slots.assign("bob", 10, 0).number == 0
    with pytest.raises(RelayRefusal):
        slots.assign("carol", 10_000, 600)
    slots.forget("bob")
    assert slots.assign("carol", 10_000, 5_000).number == 0
