"""The chain by itself: what entries look like, and that nothing about one can be changed unnoticed."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from sublet.daemon.audit_log.chain import (
    EMPTY,
    MAX_LINE_BYTES,
    NOTHING,
    BrokenChain,
    Head,
    checkpoint,
    entry_line,
    read_entry,
)

KEY = SigningKey(b"k" * 32)
AT = "2026-11-28T10:00:00.000Z"


def test_an_entry_holds_the_hash_of_the_line_before_it() -> None:
    first, head = entry_line(EMPTY, "decision", AT, {"action": "x"})
    second, after = entry_line(head, "decision", AT, {"action": "y"})
    assert json.loads(first) == {"action": "x", "at": AT, "kind": "decision", "prev": NOTHING, "seq": 1}
    assert json.loads(second)["prev"] == hashlib.sha256(first[:-1]).hexdigest() == head.hash
    assert after == Head(2, hashlib.sha256(second[:-1]).hexdigest())
    assert read_entry(first[:-1], EMPTY, None)[1] == head


def test_what_the_log_says_of_itself_can_not_be_said_by_a_caller() -> None:
    line, _ = entry_line(EMPTY, "decision", AT, {"seq": 99, "prev": "x", "kind": "checkpoint", "at": "never"})
    assert json.loads(line) == {"at": AT, "kind": "decision", "prev": NOTHING, "seq": 1}


def test_a_line_is_bounded_and_says_what_it_left_out() -> None:
    line, head = entry_line(EMPTY, "decision", AT, {"decision": "deny", "resource": "x" * MAX_LINE_BYTES})
    assert len(line) < 1_000
    entry, _ = read_entry(line[:-1], EMPTY, None)
    assert entry["decision"] == "deny"
    assert "left_out" in entry
    assert head.seq == 1


def read_both(first: bytes, second: bytes) -> None:
    _, head = read_entry(first, EMPTY, None)
    read_entry(second, head, None)


@given(st.binary(max_size=8), st.integers(0, 200))
def test_no_byte_of_a_line_can_be_changed(other: bytes, place: int) -> None:
    first, head = entry_line(EMPTY, "decision", AT, {"action": "delegation.create", "decision": "deny"})
    second, _ = entry_line(head, "decision", AT, {"action": "y"})
    changed = first[: place % len(first)] + other + first[place % len(first) + len(other) :]
    if changed == first:
        return
    with pytest.raises(BrokenChain):
        read_both(changed.rstrip(b"\n"), second[:-1])


def test_a_checkpoint_is_signed_for_exactly_what_stands_before_it() -> None:
    _, head = entry_line(EMPTY, "decision", AT, {})
    line, after = entry_line(head, "checkpoint", AT, checkpoint(head, KEY))
    public = bytes(KEY.verify_key)
    assert read_entry(line[:-1], head, public)[1] == after
    with pytest.raises(BrokenChain, match="signature"):
        read_entry(line[:-1], head, bytes(SigningKey(b"x" * 32).verify_key))
    forged, _ = entry_line(head, "checkpoint", AT, checkpoint(Head(1, "0" * 64), KEY))
    with pytest.raises(BrokenChain, match="signature"):
        read_entry(forged[:-1], head, public)
