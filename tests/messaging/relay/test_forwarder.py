"""The forwarder: each sender in turn, bounds, and that nothing of one client ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from sublet.messaging.relay import forwarder as forwarder_module
from sublet.messaging.relay.forwarder import Forwarder, Work
from sublet.messaging.relay.tokens import ForwardedTokens
from sublet.messaging.running.fair_queue import Bounds
from support.relay_accounts import Client

ALICE = Client("alice")
ROOM = ALICE.room()
KEY = f"ezagent/{ROOM}/ephemeral/presence/{ALICE.entity}"


def wait_for_gate(gate: threading.Event) -> None:
    gate.wait(20)


def test_it_does_what_waits_in_turn_and_goes_on_after_a_failure() -> None:
    forwarder, done, gate = Forwarder(), list[str](), threading.Event()
    forwarder.soon(partial(wait_for_gate, gate))

    def fail() -> None:
        raise RuntimeError("of one client")

    for sender in ("a", "a", "b"):
        forwarder.add(sender, 1, Work(partial(done.append, sender)))
    forwarder.soon(fail)
    forwarder.soon(lambda: done.append("first"))
    assert forwarder.waiting()[0] == 3
    gate.set()
    over = threading.Event()
    forwarder.add("c", 1, Work(over.set))
    assert over.wait(20)
    forwarder.close()
    assert done[0] == "first"
    assert sorted(done[1:]) == ["a", "a", "b"]
    assert done[1:3] != ["a", "a"], "nobody waits for all of another's"


def test_what_finds_no_room_is_told_and_it_is_the_largest_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        forwarder_module, "QUEUE", Bounds(items=3, size=1 << 20, items_of_owner=3, size_of_owner=1 << 20)
    )
    forwarder, gate, lost = Forwarder(), threading.Event(), list[str]()
    forwarder.soon(partial(wait_for_gate, gate))
    while forwarder.waiting()[0]:
        pass
    for number, sender in enumerate(("a", "a", "a", "b", "a")):
        forwarder.add(sender, 10, Work(lambda: None, partial(lost.append, f"{sender}{number}")))
    assert forwarder.lost == len(lost) == 2
    assert all(name.startswith("a") for name in lost)
    gate.set()
    forwarder.close()


def test_tokens_are_shown_where_they_should_be_and_nowhere_else() -> None:
    shown: set[tuple[str, str]] = set()

    def declare(slot: str, key: str) -> Callable[[], None]:
        shown.add((slot, key))
        return lambda: shown.discard((slot, key))

    tokens = ForwardedTokens(declare)
    assert tokens.came("s1", KEY)
    tokens.show("s1", KEY, frozenset({"s2", "s3"}))
    assert shown == {("s2", KEY), ("s3", KEY)}
    tokens.show("s1", KEY, frozenset({"s3", "s4"}))
    assert shown == {("s3", KEY), ("s4", KEY)}
    assert tokens.of("s1") == [KEY]
    assert tokens.in_room(ROOM) == [("s1", KEY)]
    assert tokens.in_room("another") == []
    assert tokens.went("s1", KEY)
    assert tokens.in_room(ROOM) == []
    tokens.show("s1", KEY, frozenset({"s3"}))
    assert shown == set()
    assert tokens.count() == 0


def test_what_waits_at_the_end_is_neither_done_nor_held() -> None:
    forwarder, gate, done, lost = Forwarder(), threading.Event(), list[str](), list[str]()
    begun = threading.Event()

    def hold() -> None:
        begun.set()
        wait_for_gate(gate)

    forwarder.soon(hold)
    assert begun.wait(20)
    forwarder.add("a", 1 << 20, Work(partial(done.append, "a")))
    forwarder.soon(partial(done.append, "urgent"))
    closing = threading.Thread(target=forwarder.close)
    closing.start()
    while forwarder.waiting() != (0, 0):
        pass
    forwarder.add("a", 1, Work(partial(done.append, "late"), partial(lost.append, "late")))
    gate.set()
    closing.join(20)
    assert forwarder.waiting() == (0, 0)
    assert (done, lost) == ([], ["late"])
