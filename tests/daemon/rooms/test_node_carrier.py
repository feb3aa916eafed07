"""What nodes ask over the bus is answered by whose link it came on, and one that floods is answered less."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import pytest

from sublet.daemon.rooms.node_carrier import KEYS, MAX_BLOCKED_OF_PEER, MAX_PENDING_OF_PEER, NodeCarrier
from sublet.federation.ports import KnownNode, What
from sublet.messaging.backends.zenoh_network import ZenohNetwork
from sublet.protocol.federation.envelope import MAX_ENVELOPE_BYTES

pytestmark = pytest.mark.anyio
BOB = KnownNode("node-bob", b"k" * 32, "SHA256:b", "bob")


@dataclass
class Query:
    """A question of a peer."""

    peer: str
    payload: bytes = b"hello"
    replies: list[bytes] = field(default_factory=list)
    dropped: int = 0

    def reply(self, payload: bytes) -> None:
        self.replies.append(payload)

    def drop(self) -> None:
        self.dropped += 1


class Bus:
    """A network with one peer, which answers at once or never."""

    def __init__(self, answer: bytes | None = b"yes") -> None:
        self.answer = answer
        self.serving: dict[str, Callable[[Any], None]] = {}

    def on_change(self, callback: Callable[[], None]) -> None:
        self.changed = callback

    def serve(self, key: str, callback: Callable[[Any], None]) -> Callable[[], None]:
        self.serving[key] = callback

        def end() -> None:
            del self.serving[key]

        return end

    def linked(self) -> set[str]:
        return {BOB.id}

    def ask(self, peer: str, key: str, payload: bytes, seconds: float, heard: Any) -> Callable[[], None]:
        if self.answer is not None:
            heard(self.answer, "x")
        heard(None)
        return lambda: None


@contextmanager
def on(carrier: NodeCarrier, bus: Bus) -> Iterator[None]:
    with carrier.attached(cast(ZenohNetwork, bus)):
        yield


async def test_a_node_is_asked_while_rooms_run_and_is_not_reached_else() -> None:
    carrier = NodeCarrier()
    assert not carrier.reaches(BOB)
    assert await carrier.ask(BOB, "server", b"") is None
    with on(carrier, Bus()):
        assert carrier.reaches(BOB)
        assert await carrier.ask(BOB, "server", b"") == b"yes"
    with on(carrier, Bus(None)):
        assert await carrier.ask(BOB, "event", b"") is None
    assert not carrier.reaches(BOB)


async def test_what_comes_is_answered_with_whose_link_it_came_on_and_a_flood_is_dropped() -> None:
    carrier, bus, came = NodeCarrier(), Bus(), list[tuple[What, bytes, str]]()
    goes_on = anyio.Event()

    async def answer(what: What, raw: bytes, link: str) -> bytes:
        came.append((what, raw, link))
        await goes_on.wait()
        return b"taken"

    changes: list[int] = []
    carrier.begin(answer, lambda: changes.append(1))
    async with anyio.create_task_group() as group:
        group.start_soon(carrier.serve)
        await anyio.sleep(0)
        with on(carrier, bus):
            queries = [Query(BOB.id) for _ in range(MAX_PENDING_OF_PEER + 3)]
            for query in queries:
                bus.serving[KEYS["event"]](query)
            with anyio.fail_after(10):
                while len(came) < MAX_PENDING_OF_PEER:
                    await anyio.sleep(0.005)
                goes_on.set()
                while sum(len(query.replies) for query in queries) < MAX_PENDING_OF_PEER:
                    await anyio.sleep(0.005)
            assert [query.dropped for query in queries[-3:]] == [1, 1, 1]
            assert set(came) == {("event", b"hello", BOB.id)}
        assert bus.serving == {}
        assert len(changes) >= 2
        group.cancel_scope.cancel()


class Stuck(Query):
    """A question of a peer that reads no answer."""

    goes_on = threading.Event()

    def reply(self, payload: bytes) -> None:
        self.goes_on.wait(30)
        super().reply(payload)


async def yes(what: What, raw: bytes, link: str) -> bytes:
    return b"yes"


async def test_a_peer_that_reads_nothing_leaves_room_for_the_others() -> None:
    carrier, bus = NodeCarrier(), Bus()
    carrier.begin(yes, lambda: None)
    Stuck.goes_on = threading.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(carrier.serve)
        await anyio.sleep(0)
        with on(carrier, bus):
            stuck = [Stuck(BOB.id) for _ in range(MAX_PENDING_OF_PEER)]
            other = Query("node-ann")
            for query in (*stuck, other):
                bus.serving[KEYS["event"]](query)
            try:
                with anyio.fail_after(10):
                    while not other.replies:
                        await anyio.sleep(0.005)
                assert carrier._blocked.borrowed_tokens <= MAX_BLOCKED_OF_PEER
            finally:
                Stuck.goes_on.set()
            with anyio.fail_after(10):
                while not all(query.replies for query in stuck) or carrier._shares or carrier._pending:
                    await anyio.sleep(0.005)
        group.cancel_scope.cancel()


async def test_what_was_not_answered_when_the_service_ended_counts_against_nobody_later() -> None:
    carrier, bus = NodeCarrier(), Bus()
    carrier.begin(yes, lambda: None)
    with on(carrier, bus):
        for _ in range(2):
            async with anyio.create_task_group() as group:
                group.start_soon(carrier.serve)
                await anyio.sleep(0)
                group.cancel_scope.cancel()
            queries = [Query(BOB.id) for _ in range(MAX_PENDING_OF_PEER)]
            for query in queries:
                bus.serving[KEYS["event"]](query)
            await anyio.sleep(0.01)
            assert [query.dropped for query in queries] == [1] * MAX_PENDING_OF_PEER
            assert not carrier._pending


async def test_what_is_larger_than_any_envelope_is_dropped_before_it_waits() -> None:
    carrier, bus = NodeCarrier(), Bus()
    with on(carrier, bus):
        query = Query(BOB.id, b"x" * (MAX_ENVELOPE_BYTES + 1))
        bus.serving[KEYS["event"]](query)
        assert query.dropped == 1
        assert not carrier._pending
