"""The sealed envelope, byte for byte as its vectors have it: what it shows, what opens it, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sublet.protocol.ezagent.errors import Refusal, Refused
from sublet.protocol.ezagent.sealing.envelope import (
    MAX_PLAIN_BYTES,
    Header,
    Place,
    Sealed,
    check_told,
    is_sealed,
    open_sealed,
    place_of,
    seal,
    unpack,
    verify,
)
from sublet.protocol.ezagent.sealing.wire import NO_ID, device_id
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.encode import Transaction
from sublet.protocol.ezagent.yjs.update import MAX_CLIENT, MAX_CLOCK, Deletion, Update

ROOM = "01957a3b-0000-7000-8000-000000000005"
DOC = f"ezagent/{ROOM}/index/2026-11"
DEVICE, OTHER = SigningKey(b"\1" * 32), SigningKey(b"\2" * 32)
KEY, OTHER_KEY = b"\3" * 32, b"\4" * 32
HEADER = Header(device_id(bytes(DEVICE.verify_key)), DOC, b"\5" * 16, Place(7, 3, 5, b"\6" * 16, b""))
CASES = json.loads((Path(__file__).parent / "sealed-vectors.json").read_text())
PLANTED = b"the planted words"


def sealed(plain: bytes = PLANTED, header: Header = HEADER) -> Sealed:
    return seal(DEVICE, KEY, header, plain)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["what"])
def test_sealed_envelopes_are_those_of_the_vectors(case: dict[str, str]) -> None:
    device, key = SigningKey(bytes.fromhex(case["device_seed"])), bytes.fromhex(case["epoch_key"])
    read = unpack(bytes.fromhex(case["sealed"]))
    verify(read, bytes(device.verify_key))
    assert open_sealed(read, key).hex() == case["plain"]
    assert seal(device, key, read.header, bytes.fromhex(case["plain"])).raw.hex() == case["sealed"]
    assert read.head_after().hex() == case["head_after"]
    assert read.header.document == case["document"]


@given(st.binary(max_size=2_000), st.integers(0, MAX_CLIENT), st.integers(0, MAX_CLOCK), st.booleans())
def test_what_was_sealed_comes_back_with_its_header(plain: bytes, client: int, clock: int, deletes: bool) -> None:
    header = replace(HEADER, place=Place(client, clock // 2, clock, b"\7" * 16, b"\x08" * 16 if deletes else b""))
    made = sealed(plain, header)
    read = unpack(made.raw)
    assert read == made
    assert read.header == header
    assert is_sealed(read.raw)
    verify(read, bytes(DEVICE.verify_key))
    assert open_sealed(read, KEY) == plain


def test_nothing_of_the_content_shows_and_the_length_says_little() -> None:
    assert PLANTED not in sealed().raw
    assert len(sealed(b"yes").raw) == len(sealed(b"a longer answer" * 10).raw)


def test_sealing_the_same_again_says_nothing_new_and_another_content_has_another_nonce() -> None:
    assert sealed().raw == sealed().raw
    nonces = {
        sealed(plain, header).box[:24] for plain in (b"1", b"2") for header in (HEADER, replace(HEADER, epoch=NO_ID))
    }
    assert len(nonces) == 4


@given(st.integers(0, 5_000), st.integers(0, 7))
def test_no_bit_can_change(place: int, bit: int) -> None:
    raw = bytearray(sealed().raw)
    raw[place % len(raw)] ^= 1 << bit
    with pytest.raises(Refused):
        verify(unpack(bytes(raw)), bytes(DEVICE.verify_key))


@given(st.integers(0, 5_000))
def test_what_is_cut_off_or_goes_on_is_refused(length: int) -> None:
    raw = sealed().raw
    for wrong in (raw[: length % len(raw)], raw + b"\0"):
        with pytest.raises(Refused):
            unpack(wrong)


def test_another_device_key_or_header_does_not_open_it() -> None:
    with pytest.raises(Refused, match="not signed"):
        verify(sealed(), bytes(OTHER.verify_key))
    with pytest.raises(Refused, match="does not open"):
        open_sealed(sealed(), OTHER_KEY)
    moved = Sealed(replace(HEADER, document=f"ezagent/{ROOM}/config"), sealed().box, b"", b"")
    with pytest.raises(Refused, match="does not open"):
        open_sealed(moved, KEY)
    for box in (b"", sealed().box[:30], sealed().box[:-1]):
        with pytest.raises(Refused):
            open_sealed(Sealed(HEADER, box, b"", b""), KEY)


def test_a_header_of_another_device_is_not_sealed() -> None:
    with pytest.raises(ValueError, match="another device"):
        seal(OTHER, KEY, HEADER, b"")


@pytest.mark.parametrize(
    "place",
    [
        Place(MAX_CLIENT + 1, 0, 1),
        Place(1, 2, 1),
        Place(1, 0, 1, NO_ID, b"short"),
    ],
)
def test_a_place_that_can_not_be_is_refused(place: Place) -> None:
    with pytest.raises(Refused, match="can't be"):
        unpack(sealed(header=replace(HEADER, place=place)).raw)


def test_a_document_that_is_none_is_refused() -> None:
    for document in ("ezagent/x", "", "ezagent/" + "a" * 900):
        with pytest.raises(Refused):
            unpack(sealed(header=replace(HEADER, document=document)).raw)


def test_too_much_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        sealed(bytes(MAX_PLAIN_BYTES + 1))
    assert refused.value.refusal is Refusal.OVERSIZED
    with pytest.raises(Refused) as refused:
        unpack(bytes(12 << 20))
    assert refused.value.refusal is Refusal.OVERSIZED


def test_the_header_tells_the_truth_of_what_is_inside() -> None:
    transaction = Transaction(7, 3)
    transaction.append_maps("timeline", None, [{"a": "b"}])
    payload = transaction.encode()
    update = decode_update(payload)
    header = replace(HEADER, place=place_of(update, payload, KEY, b"\6" * 16))
    assert (header.place.client, header.place.start, header.place.end) == (7, 3, update.end)
    check_told(header, DOC, update, payload, KEY)
    for lie in (
        replace(header, document=f"ezagent/{ROOM}/config"),
        replace(header, place=replace(header.place, client=9)),
        replace(header, place=replace(header.place, start=9)),
        replace(header, place=replace(header.place, end=9)),
        replace(header, place=replace(header.place, deletions=b"\1" * 16)),
    ):
        with pytest.raises(Refused, match="another one"):
            check_told(lie, DOC, update, payload, KEY)


def test_what_is_deleted_shows_as_a_mark_that_says_nothing_without_the_key() -> None:
    update = Update(deletions=[Deletion(7, 0, 1)])
    mark = place_of(update, b"payload", KEY).deletions
    assert mark == place_of(update, b"payload", KEY).deletions
    assert (
        len({mark, place_of(update, b"payload", OTHER_KEY).deletions, place_of(update, b"other", KEY).deletions}) == 3
    )
    assert place_of(update, b"payload", KEY) == Place(deletions=mark)


def test_a_log_goes_on_from_its_head() -> None:
    first = sealed()
    second = sealed(header=replace(HEADER, place=replace(HEADER.place, head=first.head_after())))
    assert second.head_after() != first.head_after() != sealed(b"other").head_after()
