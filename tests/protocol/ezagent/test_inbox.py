"""Lists of known rooms."""

from __future__ import annotations

import pytest

from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import ROOM_SALT_BYTES, room_id
from sublet.protocol.ezagent.inbox import MAX_KNOWN_ROOMS, encode_known, parse_known

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
