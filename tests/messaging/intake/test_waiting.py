"""What waits for keys is bounded in every direction, and comes out in its order."""

from __future__ import annotations

import pytest

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.intake import waiting
from sublet.messaging.intake.waiting import MAX_UNKNOWN_SIGNERS, MAX_WAITING_FOR_KEY, WaitingForKeys


def test_what_waits_is_given_back_once_and_in_order() -> None:
    kept = WaitingForKeys()
    first, second = Arrival(b"one"), Arrival(b"two", (b"content",))
    kept.keep("@a:x", first)
    kept.keep("@a:x", second)
    assert "@a:x" in kept
    assert kept.release("@a:x") == [first, second]
    assert "@a:x" not in kept
    assert kept.release("@a:x") == []


def test_of_one_signer_only_so_many_are_kept_and_of_many_signers_the_last_ones() -> None:
    kept = WaitingForKeys()
    for number in range(MAX_WAITING_FOR_KEY + 1):
        kept.keep("@a:x", Arrival(b"%d" % number))
    for number in range(MAX_UNKNOWN_SIGNERS - 1):
        kept.keep(f"@b{number}:x", Arrival(b""))
    assert "@a:x" in kept
    kept.keep("@b0:x", Arrival(b""))
    assert "@a:x" in kept, "whoever waits already takes nobody's place"
    kept.keep("@one-more:x", Arrival(b"more"))
    assert "@a:x" not in kept
    assert kept.size == len(b"more")
    assert kept.release("@one-more:x") == [Arrival(b"more")]


def test_so_many_bytes_are_kept_and_their_room_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITING_BYTES", 10)
    kept = WaitingForKeys()
    kept.keep("@a:x", Arrival(b"12345678"))
    kept.keep("@b:x", Arrival(b"123"))
    assert kept.release("@b:x") == []
    assert len(kept.release("@a:x")) == 1
    kept.keep("@b:x", Arrival(b"123"))
    assert len(kept.release("@b:x")) == 1
