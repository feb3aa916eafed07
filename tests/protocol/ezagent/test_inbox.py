"""Lists of known rooms."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey

from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import ROOM_SALT_BYTES, room_id
from sublet.protocol.ezagent.inbox import MAX_KNOWN_ROOMS, encode_known, open_offer, parse_known, seal_offer

ROOMS = {room_id("@alice:node-a", 1_000 + number, bytes(ROOM_SALT_BYTES)) for number in range(20)}


def test_what_is_known_travels_in_sixteen_bytes_a_room() -> None:
    raw = encode_known(ROOMS)
    assert len(raw) == 16 * len(ROOMS)
    assert parse_known(raw) == ROOMS
    assert parse_known(b"") == frozenset()


@pytest.mark.parametrize("raw", [b"x", bytes(15), bytes(16), bytes(16 * (MAX_KNOWN_ROOMS + 1))])
def test_other_lists_are_refused(raw: bytes) -> None:
    with pytest.raises(Refused):
        parse_known(raw)


def test_an_offer_is_opened_by_whom_it_is_for_alone() -> None:
    alice, bob = SigningKey(b"\1" * 32), SigningKey(b"\2" * 32)
    sealed = seal_offer(bob.verify_key, b"the planted words")
    assert b"planted" not in sealed
    assert open_offer([alice, bob], sealed) == b"the planted words"
    assert open_offer([alice], b"not sealed") == b"not sealed"
    for wrong in (sealed[:-1], sealed[:1], sealed + b"\0"):
        with pytest.raises(Refused):
            open_offer([bob], wrong)
    with pytest.raises(Refused, match="not sealed for us"):
        open_offer([alice], sealed)


def test_the_length_of_an_offer_says_little_of_it() -> None:
    bob = SigningKey(b"\2" * 32)
    assert len({len(seal_offer(bob.verify_key, b"x" * size)) for size in range(1, 200)}) == 1
