"""Keys between a relay and a client: there and back, and nothing of another form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.relay.slot_keys import MAX_SLOTS, Way, everything, plain_key, slot_name, slot_number, wire_key

CHUNK = st.text("abcdefghijklmnopqrstuvwxyz0123456789@:.-_", min_size=1, max_size=12)


@given(st.integers(0, MAX_SLOTS - 1), st.lists(CHUNK, min_size=1, max_size=6), st.sampled_from(Way))
def test_a_key_comes_back_as_it_was(number: int, chunks: list[str], way: Way) -> None:
    slot, key = slot_name(number), "/".join(("ezagent", *chunks))
    wire = wire_key(way, slot, key)
    assert plain_key(way, wire) == (slot, key)
    assert wire.startswith(everything(way, slot).removesuffix("**"))
    assert "/@" not in wire
    assert plain_key(Way.UP if way is Way.DOWN else Way.DOWN, wire) is None
    assert slot_number(slot) == number


@pytest.mark.parametrize(
    "wire",
    ["", "up", "up/s00001", "up/s00001/", "up/s1/x", "up/s000001/x", "up/*/x", "up/**", "x/s00001/y", "up/S00001/y"],
)
def test_what_has_another_form_is_nobodys(wire: str) -> None:
    assert plain_key(Way.UP, wire) is None


@pytest.mark.parametrize("number", [-1, MAX_SLOTS])
def test_there_are_no_other_slots(number: int) -> None:
    with pytest.raises(ValueError, match="no number"):
        slot_name(number)
    assert slot_number("relay") is None
