"""Whoever floods waits behind themselves."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from sublet.messaging.ports.network import Sample
from sublet.messaging.running import arrivals
from sublet.messaging.running.arrivals import BATCH_BYTES, SHORT_BATCH, SHORT_SECONDS, Arrivals
from sublet.protocol.ezagent.bundle import MAX_BUNDLE_BYTES
from sublet.protocol.ezagent.envelope import MAX_ENVELOPE_BYTES


def sample(signer: str, number: int, size: int = 0, peer: str = "") -> Sample:
    who = signer.encode()
    head = b"\1" + len(who).to_bytes(2, "big") + who
    return Sample("key", head + number.to_bytes(4, "big") + bytes(size), b"", peer)


@dataclass
class Query:
    payload: bytes
    key: str = "key"
    peer: str = ""

    def reply(self, payload: bytes) -> None:
        raise AssertionError(payload)

    def drop(self) -> None:
        raise AssertionError(self)


def numbers(batch: Sequence[object], signer: str) -> list[int]:
    who = signer.encode()
    return [
        int.from_bytes(item.payload[3 + len(who) :][:4], "big")
        for item in batch
        if isinstance(item, Sample) and item.payload[3:].startswith(who)
    ]


def test_a_flood_delays_nobody_else() -> None:
    queue = Arrivals[int]()
    for number in range(5_000):
        assert queue.hear(sample("@eve:node", number))
    for number in range(3):
        assert queue.hear(sample("@alice:node", number))
    batch = queue.take(256)
    assert numbers(batch, "@alice:node") == [0, 1, 2]
    assert numbers(batch, "@eve:node") == list(range(SHORT_BATCH - 3))
    rest = [item for _ in range(19) for item in queue.take(256)]
    assert numbers(rest, "@eve:node") == list(range(SHORT_BATCH - 3, SHORT_BATCH - 3 + len(rest)))


def test_whoever_floods_under_many_names_has_one_turn() -> None:
    queue = Arrivals[int]()
    for number in range(1_000):
        assert queue.hear(sample(f"@name-{number}:node", number, peer="node-eve"))
        assert queue.offer(Query(number.to_bytes(4, "big"), peer="node-eve"))
    for number in range(3):
        assert queue.hear(sample("@alice:node", number, peer="node-alice"))
    assert numbers(queue.take(9), "@alice:node") == [0, 1, 2], "what it asks and what it says have a turn each"
    for number in range(5_120):
        queue.hear(sample(f"@other-{number}:node", number, peer="node-eve"))
    assert not queue.hear(sample("@another:node", 0, peer="node-eve"))
    assert queue.hear(sample("@another:node", 0, peer="node-alice"))


def test_nobody_is_taken_for_somebody_else_by_what_they_claim() -> None:
    queue = Arrivals[int]()
    for number in range(1_000):
        queue.hear(sample("@alice:node", number, peer="node-eve"))
    queue.hear(sample("@alice:node", 1_000, peer="node-alice"))
    assert 1_000 in numbers(queue.take(2), "@alice:node")


def test_batches_are_short_while_several_wait_and_for_a_moment_after(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    queue = Arrivals[str](clock=lambda: now[0])
    for number in range(2_000):
        queue.hear(sample("@eve:node", number, peer="node-eve"))
    assert len(queue.take(256)) == 256, "nobody else waits"
    queue.put("a call")
    assert len(queue.take(256)) == 1 + SHORT_BATCH
    assert len(queue.take(256)) == SHORT_BATCH, "whoever comes next waits for this one"
    now[0] += SHORT_SECONDS
    assert len(queue.take(256)) == 256
    queue.hear(sample("@alice:node", 0, peer="node-alice"))
    assert len(queue.take(256)) == SHORT_BATCH


def test_what_one_signer_may_have_waiting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MAX_OF_SIGNER", 10)
    monkeypatch.setattr(arrivals, "MAX_BYTES_OF_SIGNER", 10_000)
    queue = Arrivals[int]()
    assert [queue.hear(sample("@eve:node", number)) for number in range(12)].count(True) == 10
    assert [queue.hear(sample("@big:node", number, 4_000)) for number in range(5)].count(True) == 2
    assert queue.hear(sample("@alice:node", 0))
    queue.take(256)
    assert queue.hear(sample("@big:node", 0, 4_000))
    assert queue.hear(sample("@eve:node", 12))


def test_the_largest_message_with_all_its_contents_finds_room() -> None:
    queue = Arrivals[int]()
    largest = sample("@eve:node", 0, MAX_ENVELOPE_BYTES)
    assert queue.hear(Sample(largest.key, largest.payload[:MAX_ENVELOPE_BYTES], bytes(MAX_BUNDLE_BYTES)))
    assert not queue.hear(sample("@eve:node", 1))


def test_all_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MAX_SIGNERS", 20)
    monkeypatch.setattr(arrivals, "MAX_WAITING_BYTES", 65_000)
    queue = Arrivals[int]()
    assert [queue.hear(sample(f"@s{number}:node", 0)) for number in range(30)].count(True) == 30
    assert [queue.hear(sample(f"@s{number}:node", 1, 10_000)) for number in range(20)].count(True) == 4
    for payload in (b"", b"\1", b"\1\xff\xff", b"\1\0\5@e"):
        queue.hear(Sample("key", payload, b""))
    monkeypatch.setattr(arrivals, "SHORT_BATCH", 256)
    monkeypatch.setattr(arrivals, "SHORT_BATCH_BYTES", 1 << 20)
    batch = queue.take(256)
    assert len(batch) == 38, "those of no signer, too: they are refused when they are read"
    assert numbers(batch, "@s29:node") == [0], "whoever comes late shares a queue and is heard"


def test_queries_wait_in_turn_and_keep_no_call_back() -> None:
    queue = Arrivals[str]()
    for number in range(5_000):
        assert queue.offer(Query(b"record of eve".ljust(200) + number.to_bytes(4, "big")))
    alice = Query(b"record of alice".ljust(200))
    assert queue.offer(alice)
    queue.put("a call")
    batch = queue.take(256)
    assert batch[0] == "a call"
    assert alice in batch
    assert len(queue.rest()) == 5_001 - SHORT_BATCH


def test_calls_come_first_but_never_alone() -> None:
    queue = Arrivals[int]()
    for number in range(1_000):
        queue.put(number)
        queue.hear(sample("@alice:node", number))
    batch = queue.take(100)
    assert batch[:50] == list(range(50))
    assert numbers(batch[50:], "@alice:node") == list(range(SHORT_BATCH))
    assert queue.rest() == list(range(50, 1_000))
    got: list[object] = []
    reader = threading.Thread(target=lambda: got.extend(queue.take(10)))
    reader.start()
    queue.put(None)
    reader.join(30)
    assert got == [None]


def test_what_is_large_is_taken_in_small_batches_so_that_calls_come_in_between() -> None:
    arrivals = Arrivals[str]()
    large = Sample("k", bytes([1, 0, 1]) + b"x" + bytes(BATCH_BYTES // 2), b"")
    for _ in range(8):
        arrivals.hear(large)
    assert len(arrivals.take(256)) == 2
    arrivals.put("a call")
    assert arrivals.take(256)[0] == "a call"


def test_names_that_nobody_has_proven_take_no_queue_of_a_proven_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MAX_SIGNERS", 2)
    monkeypatch.setattr(arrivals, "MAX_OF_SIGNER", 3)
    queue = Arrivals[int]()
    forged = [queue.hear(sample(f"@eve-{number}:node", number)) for number in range(9)]
    assert not forged[-1], "what such names share is full"
    assert queue.hear(sample("@alice:node", 1, peer="node-of-alice"))
    assert queue.offer(Query(b"?", peer="node-of-alice"))
    assert numbers(queue.take(8), "@alice:node") == [1]
