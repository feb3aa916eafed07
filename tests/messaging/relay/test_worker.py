"""The worker: each sender in turn, bounds, and that nothing of one client ends it."""

from __future__ import annotations

import threading

import pytest

from sublet.messaging.relay import worker as worker_module
from sublet.messaging.relay.tokens import ForwardedTokens
from sublet.messaging.relay.worker import Work, Worker
from sublet.messaging.running.fair_queue import Bounds


def test_it_does_what_waits_in_turn_and_goes_on_after_a_failure() -> None:
    worker, done, gate = Worker(), list[str](), threading.Event()
    worker.soon(gate.wait)

    def fail() -> None:
        raise RuntimeError("of one client")

    for sender in ("a", "a", "b"):
        worker.add(sender, 1, Work(lambda sender=sender: done.append(sender)))
    worker.soon(fail)
    worker.soon(lambda: done.append("first"))
    assert worker.waiting()[0] == 3
    gate.set()
    over = threading.Event()
    worker.add("c", 1, Work(over.set))
    assert over.wait(20)
    worker.close()
    assert done[0] == "first"
    assert sorted(done[1:]) == ["a", "a", "b"]
    assert done[1:3] != ["a", "a"], "nobody waits for all of another's"


def test_what_finds_no_room_is_told_and_it_is_the_largest_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "QUEUE", Bounds(items=3, size=1 << 20, items_of_owner=3, size_of_owner=1 << 20))
    worker, gate, lost = Worker(), threading.Event(), list[str]()
    worker.soon(gate.wait)
    while worker.waiting()[0]:
        pass
    for number, sender in enumerate(("a", "a", "a", "b", "a")):
        worker.add(sender, 10, Work(lambda: None, lambda name=f"{sender}{number}": lost.append(name)))
    assert worker.lost == len(lost) == 2
    assert all(name.startswith("a") for name in lost)
    gate.set()
    worker.close()


def test_tokens_are_shown_where_they_should_be_and_nowhere_else() -> None:
    shown: set[tuple[str, str]] = set()

    def declare(slot: str, key: str):  # type: ignore[no-untyped-def]
        shown.add((slot, key))
        return lambda: shown.discard((slot, key))

    tokens = ForwardedTokens(declare)
    assert tokens.came("s1", "k")
    tokens.show("s1", "k", frozenset({"s2", "s3"}))
    assert shown == {("s2", "k"), ("s3", "k")}
    tokens.show("s1", "k", frozenset({"s3", "s4"}))
    assert shown == {("s3", "k"), ("s4", "k")}
    assert tokens.of("s1") == ["k"]
    assert tokens.announcing() == ["s1"]
    assert tokens.went("s1", "k")
    tokens.show("s1", "k", frozenset({"s3"}))
    assert shown == set()
    assert tokens.count() == 0
