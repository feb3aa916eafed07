"""What a removal has seen: what is taken for a vector, and what that covers."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.protocol.ezagent.room.seen import (
    CONFIG,
    MAX_DOCUMENTS,
    MAX_PACKED_BYTES,
    MAX_PAIRS_BY_NAME,
    NAME_BYTES,
    PACKED,
    PackedSeen,
    covers,
    parse_seen,
    seen_value,
)
from sublet.protocol.ezagent.yjs.decode import MAX_UPDATE_BYTES
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


def contents(count: int, clients: tuple[int, ...]) -> dict[str, dict[int, int]]:
    """Return a vector of so many contents, the last the newest, in which all clients have written."""
    return {f"content/uuid:{number:032x}": dict.fromkeys(clients, number % 7 + 1) for number in range(count)}


@pytest.mark.parametrize("count", [MAX_PAIRS_BY_NAME, MAX_PAIRS_BY_NAME + 1, 4_097, 16_384])
def test_a_vector_of_any_length_is_read_as_it_was_written(count: int) -> None:
    seen = contents(count, (7,))
    value = seen_value(seen)
    assert (PACKED in value) is (count > MAX_PAIRS_BY_NAME == 256)
    read = parse_seen(value)
    assert read is not None
    for doc in (next(iter(seen)), f"content/uuid:{count // 2:032x}", f"content/uuid:{count - 1:032x}"):
        clock = seen[doc][7]
        assert covers(read, doc, (7, clock - 1))
        assert not covers(read, doc, (7, clock))
        assert not covers(read, doc, (8, 0))
        assert dict(read.get(doc, {}).items()) == seen[doc]
    assert not covers(read, f"content/uuid:{count:032x}", (7, 0))
    assert read.get("nowhere", {}) == {}


@given(st.dictionaries(st.text(max_size=3), CLOCKS, max_size=8), st.integers(0, MAX_CLIENT))
def test_a_packed_vector_covers_what_the_other_does(seen: dict[str, dict[int, int]], other: int) -> None:
    many = seen | contents(MAX_PAIRS_BY_NAME + 1, (5,))
    read = parse_seen(seen_value(many))
    assert isinstance(read, PackedSeen)
    for doc, clocks in seen.items():
        assert dict(read[doc]) == clocks
        assert len(read[doc]) == len(clocks)
        assert read[doc].get(other, -1) == clocks.get(other, -1)
        for client, clock in clocks.items():
            assert not covers(read, doc, (client, clock))
            assert clock == 0 or covers(read, doc, (client, clock - 1))


def test_the_longest_vector_fits_into_a_statement_and_covers_the_room_itself_and_what_is_new() -> None:
    clients = tuple(MAX_CLIENT - number for number in range(4))
    seen = contents(16_384, clients) | {CONFIG: {clients[0]: 9}, "index/2026-11": {clients[1]: 9}, "ext/1/2": {3: 9}}
    value = seen_value(seen)
    text = value[PACKED]
    assert isinstance(text, str)
    assert len(text) + 65_536 < MAX_UPDATE_BYTES
    read = parse_seen(value)
    assert isinstance(read, PackedSeen)
    assert MAX_PACKED_BYTES - NAME_BYTES - 6 <= len(read.data) <= MAX_PACKED_BYTES
    for doc in (CONFIG, "index/2026-11", "ext/1/2", f"content/uuid:{16_383:032x}"):
        assert dict(read[doc]) == seen[doc]
    assert not read[f"content/uuid:{0:032x}"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\0\1",
        b"\0\1" + bytes(7),
        bytes(3),
        bytes(2 + 17),
        bytes(2 + 19),
        bytes(2 + 18 * (MAX_PACKED_BYTES // 18 + 1)),
    ],
    ids=range(8),
)
def test_no_packed_vector(data: bytes) -> None:
    text = base64.b64encode(data).decode()
    assert parse_seen({PACKED: text}) is None
    whole = base64.b64encode(bytes(2 + 18)).decode()
    assert parse_seen({PACKED: whole}) == PackedSeen(bytes(20))
    odd: list[Value] = [{PACKED: whole, CONFIG: {}}, {PACKED: whole + "="}, {PACKED: whole[:-1] + "\n"}, {PACKED: "é"}]
    assert [parse_seen(wrong) for wrong in odd] == [None] * 4


@given(st.binary(max_size=80))
def test_whatever_is_packed_covers_something_or_not(data: bytes) -> None:
    seen = parse_seen({PACKED: base64.b64encode(data).decode()})
    if seen is not None:
        for client in (0, 1, MAX_CLIENT):
            assert covers(seen, CONFIG, (client, 0)) in (True, False)
        assert len(seen.get(CONFIG, {})) >= 0


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
