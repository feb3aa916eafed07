"""The codec of Yjs updates: byte for byte what yrs writes, and strict with everything else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycrdt import Array, Doc, Map

from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.yjs import decode
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.encode import Nested, Transaction
from sublet.protocol.ezagent.yjs.update import ANY, TYPE, Value
from sublet.protocol.ezagent.yjs.vectors import decode_vector, encode_vector
from support.budgets import examples

VECTORS = Path(__file__).parent / "vectors"
CLIENTS = st.integers(1, 2**53 - 1)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=1)
)
FIELDS = st.dictionaries(st.text(min_size=1, max_size=8), VALUES | st.just(Nested()), min_size=1, max_size=1)


def recorded(doc: Doc[Any]) -> list[bytes]:
    updates: list[bytes] = []
    doc.observe(lambda event: updates.append(event.update))
    return updates


def shared(fields: dict[str, Any]) -> Map[Any]:
    return Map({key: Map({}) if isinstance(value, Nested) else value for key, value in fields.items()})


@settings(max_examples=examples(60), deadline=None)
@given(CLIENTS, st.lists(st.lists(FIELDS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_appends_are_what_yrs_writes(client: int, batches: list[list[dict[str, Any]]]) -> None:
    doc: Doc[Any] = Doc(client_id=client, skip_gc=True)
    array: Array[Any] = doc.get("timeline", type=Array)
    updates = recorded(doc)
    clock, last = 0, None
    for maps in batches:
        with doc.transaction():
            for fields in maps:
                array.append(shared(fields))
        transaction = Transaction(client, clock)
        last = transaction.append_maps("timeline", last, maps)[-1]
        assert transaction.encode() == updates[-1]
        assert transaction.update() == decode_update(updates[-1])
        clock = decode_update(updates[-1]).end
        assert clock == transaction.clock


@settings(max_examples=examples(60), deadline=None)
@given(CLIENTS, st.lists(st.tuples(st.sampled_from("abc"), VALUES), min_size=1, max_size=8))
def test_setting_keys_is_what_yrs_writes(client: int, writes: list[tuple[str, Value]]) -> None:
    doc: Doc[Any] = Doc(client_id=client, skip_gc=True)
    root: Map[Any] = doc.get("config", type=Map)
    updates = recorded(doc)
    root["members"] = Map({})
    transaction = Transaction(client, 0)
    members = transaction.set_key("config", "members", None, Nested())
    assert transaction.encode() == updates[-1]
    here: dict[str, tuple[int, int]] = {}
    for key, value in writes:
        root["members"][key] = value
        transaction = Transaction(client, transaction.clock)
        here[key] = transaction.set_key(members, key, here.get(key), value)
        assert transaction.encode() == updates[-1]
        assert transaction.update() == decode_update(updates[-1])


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from((1, 200, 2**31, 2**53 - 1)),
    st.sampled_from((0, 100, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152)),
    st.lists(FIELDS, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=2),
    st.integers(0, 10_000),
)
def test_what_is_read_in_one_piece_is_read_as_piece_by_piece(
    client: int, clock: int, maps: list[dict[str, Any]], changes: list[tuple[int, int]], cut: int
) -> None:
    transaction = Transaction(client, clock)
    transaction.append_maps("timeline", None, [*maps, {"text": "x" * 126}, {"more": "x" * 128}])
    data = bytearray(transaction.encode())
    for place, value in changes:
        data[place % len(data)] = value
    raw = bytes(data[: max(1, len(data) - cut)] if cut < len(data) and changes else data)

    def read() -> object:
        try:
            return decode_update(raw)
        except Refused as refused:
            return refused.refusal

    found = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "_field", lambda *_: None)
        assert read() == found


def test_a_later_client_takes_over_from_the_first() -> None:
    first: Doc[Any] = Doc(client_id=7, skip_gc=True)
    updates = recorded(first)
    first.get("config", type=Map)["name"] = "a"
    second: Doc[Any] = Doc(client_id=9, skip_gc=True)
    second.apply_update(updates[0])
    updates = recorded(second)
    second.get("config", type=Map)["name"] = "b"
    transaction = Transaction(9, 0)
    transaction.set_key("config", "name", (7, 0), "b")
    assert transaction.encode() == updates[0]


def test_the_vector_is_decoded_with_whole_numbers_as_integers() -> None:
    update = decode_update((VECTORS / "u.bin").read_bytes())
    assert (update.client, update.start, update.end) == (1, 0, 9)
    values = {item.key: item.value for item in update.items if item.kind == ANY}
    assert values["ref_id"] == ["1"]
    assert values["n"] == [1708500001000]
    assert values["f"] == [1.5]
    assert values["l"] == [[1, 2]]
    assert values["b"] == [b"xy"]
    assert values["big"] == [1152921504606846976.0]
    assert [item.key for item in update.items if item.kind == TYPE] == [None, "ext.reactions"]


def test_a_gap_is_seen_by_its_clock() -> None:
    ranges = [decode_update((VECTORS / f"g{index}.bin").read_bytes()) for index in range(4)]
    assert [(update.start, update.end) for update in ranges] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def appended(*maps: Mapping[str, Value | Nested]) -> bytes:
    """Return the update of client 5 that appends maps to a timeline, behind the second item of client 4."""
    transaction = Transaction(5, 3)
    transaction.append_maps("timeline", (4, 1), maps)
    return transaction.encode()


GOOD = appended({"a": 1, "b": Nested()})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",  # changes nothing
        GOOD + b"\0",  # goes on after its end
        GOOD[:-1],
        b"\x02" + GOOD[1:],  # more than one client
        b"\x01\x00\x05\x03\x00",  # a client without items
        b"\x01\x81\x00\x05\x03\x00",  # a number that could be shorter
        b"\x01\x01\x05\x00\x0a\x05\x00",  # a gap inside
        b"\x01\x01\x05\x00\x00\x00\x00",  # a hole of no length
        b"\x01\x01\x05\x00\x08\x01\x01t\x00\x00",  # no values
        b"\x01\x01\x05\x00\x04\x01\x01t\x00\x00",  # no text
        b"\x01\x01\x05\x00\x05\x01\x01t\x01{\x00",  # an embed
        b"\x01\x01\x05\x00\x07\x01\x01t\x04\x00",  # an XML type
        b"\x01\x01\x05\x00\x88\x05\x00\x01\x77\x00\x00",  # follows itself
        b"\x00\x01\x05\x01\x00\x00",  # deletes nothing
        b"\x00\x02\x05\x01\x00\x01\x05\x01\x01\x01",  # a client twice
        b"\x01\x01\x05\x00\x08\x01\x01t\x01\x7b\x7f\xf0\0\0\0\0\0\0\x00",  # infinite
        b"\x01\x01\x05\x00\x08\x01\x01t\x01" + b"\x75\x01" * 20 + b"\x7e\x00",  # too deep
        b"\x01\x01\x05\x00\x08\x01\x01t\x01\x76\x02\x01a\x7e\x01a\x7e\x00",  # a key twice
        b"\x01\xff\xff\xff\xff\x0f\x05\x00\x00",  # a huge count in few bytes
    ],
)
def test_what_no_writer_makes_is_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        decode_update(data)


@given(st.dictionaries(CLIENTS, st.integers(0, 2**32 - 1), max_size=5))
def test_state_vectors_travel_unchanged(vector: dict[int, int]) -> None:
    assert decode_vector(encode_vector(vector)) == vector


def test_a_state_vector_is_what_yrs_writes() -> None:
    doc: Doc[Any] = Doc(client_id=2**40)
    doc.get("m", type=Map)["a"] = 1
    other: Doc[Any] = Doc(client_id=7)
    other.get("m", type=Map)["b"] = 1
    doc.apply_update(other.get_update())
    assert encode_vector({7: 1, 2**40: 1}) == doc.get_state()
    for data in (b"", b"\x01\x05", b"\x02\x05\x01\x05\x02", b"\x00\x00"):
        with pytest.raises(Refused):
            decode_vector(data)
