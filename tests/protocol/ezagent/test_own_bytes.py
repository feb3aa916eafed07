"""What of ours travels between daemons: the bytes stay as they are, and a reader takes these bytes and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sublet.protocol.ezagent.errors import Refused
from support.own_bytes import RECORD, TRAVELLING, told

KEPT = json.loads((Path(__file__).parent / "vectors" / "own-bytes.json").read_text(encoding="utf-8"))
SIGNED = {"record", "challenge"}
"""Of which a signature covers each byte that its reader takes."""
LOOSE = {"known rooms", "question"}
"""Of which a reader takes other forms: rooms in any order, and a bundle that says that there is more."""


def test_what_travels_is_written_as_before() -> None:
    assert told() == KEPT, "daemons of before read other bytes; a new form needs another version number"


@pytest.mark.parametrize("name", TRAVELLING)
def test_a_reader_takes_what_its_writer_writes(name: str) -> None:
    one = TRAVELLING[name]
    assert one.write(one.read(one.raw)) == one.raw


@pytest.mark.parametrize("name", TRAVELLING)
def test_what_is_cut_off_or_longer_is_refused_or_means_something_else(name: str) -> None:
    one = TRAVELLING[name]
    for end in range(len(one.raw)):
        _refused_or_read(name, one.raw[:end])
    for more in (b"\0", b"x", b"\0" * 8, one.raw):
        _refused_or_read(name, one.raw + more)


@pytest.mark.parametrize("name", TRAVELLING)
def test_a_changed_byte_is_refused_or_means_something_else(name: str) -> None:
    raw = TRAVELLING[name].raw
    for at in range(len(raw)):
        for byte in {raw[at] ^ 1, raw[at] ^ 0x80, 0, 0xFF} - {raw[at]}:
            _refused_or_read(name, raw[:at] + bytes([byte]) + raw[at + 1 :])


def _refused_or_read(name: str, raw: bytes) -> None:
    one = TRAVELLING[name]
    try:
        found = one.read(raw)
    except Refused:
        return
    assert name not in SIGNED
    assert name in LOOSE or one.write(found) == raw


def test_a_record_is_at_home_at_the_daemon_that_vouches_for_it() -> None:
    assert RECORD.entity_id == f"@alice:{RECORD.home}"
