"""What a removal has seen: what is taken for a vector, and what that covers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.ezagent.room.seen import CONFIG, MAX_DOCUMENTS, covers, parse_seen, seen_value
from sublet.protocol.ezagent.yjs.update import MAX_CLIENT, MAX_CLOCK, Value

CLOCKS = st.dictionaries(st.integers(0, MAX_CLIENT), st.integers(0, MAX_CLOCK), min_size=1, max_size=3)


@given(st.dictionaries(st.sampled_from([CONFIG, "index/2026-11", ""]), CLOCKS))
def test_a_vector_is_read_as_it_was_written_and_covers_what_is_below_its_clocks(
    seen: dict[str, dict[int, int]],
) -> None:
    assert parse_seen(seen_value(seen)) == seen
    for doc, clocks in seen.items():
        for client, clock in clocks.items():
            assert not covers(seen, doc, (client, clock))
            assert clock == 0 or covers(seen, doc, (client, clock - 1))
            assert covers(seen, doc, (client, 0)) is (clock > 0)
        assert not covers(seen, doc, (MAX_CLIENT + 1, 0))
        assert not covers(seen, f"{doc}x", (next(iter(clocks)), 0))


def test_what_was_seen_of_nobody_is_not_written() -> None:
    assert CONFIG == "config"
    assert seen_value({"config": {}, "index/2026-11": {7: 0}}) == {"index/2026-11": {"7": 0}}


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"config": {}},
        {"config": {"0": 0, str(MAX_CLIENT): MAX_CLOCK}},
        {"config": {"0" * 15 + "7": 1}},
        {str(number): {} for number in range(MAX_DOCUMENTS)},
    ],
    ids=range(5),
)
def test_a_vector(value: Value) -> None:
    assert MAX_DOCUMENTS == 4096
    assert isinstance(value, dict)
    assert parse_seen(value) == {
        doc: {int(client): clock for client, clock in clocks.items()}
        for doc, clocks in value.items()
        if isinstance(clocks, dict)
    }


@pytest.mark.parametrize(
    "value",
    [
        *(None, 1, "x", [], {"config": None}, {"config": []}),
        {"config": {"": 1}},
        {"config": {"x": 1}},
        {"config": {"-1": 1}},
        {"config": {"²": 1}},
        {"config": {"٣": 1}},
        {"config": {"0" * 16 + "7": 1}},
        {"config": {str(MAX_CLIENT + 1): 1}},
        {"config": {"1": -1}},
        {"config": {"1": MAX_CLOCK + 1}},
        {"config": {"1": True}},
        {"config": {"1": 1.0}},
        {"config": {"1": "1"}},
        {"config": {"1": 1}, "index/2026-11": None},
        {str(number): {} for number in range(MAX_DOCUMENTS + 1)},
    ],
    ids=range(20),
)
def test_no_vector(value: Value) -> None:
    assert parse_seen(value) is None
