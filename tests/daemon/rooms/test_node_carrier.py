"""What nodes ask over the bus is answered by whose link it came on, and one that floods is answered less."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio
import pytest
from nacl.signing import SigningKey

from sublet.daemon.rooms import node_carrier
from sublet.daemon.rooms.node_carrier import KEYS, MAX_BLOCKED_OF_PEER, MAX_PENDING_OF_PEER, RELAY, NodeCarrier
from sublet.daemon.rooms.relayed_nodes import RelayedNodes
from sublet.federation.carriers import Carriers
from sublet.federation.ports import KnownNode, What
from sublet.messaging.backends.zenoh_network import ZenohNetwork
from sublet.messaging.ports.network import ANYBODY
from sublet.protocol.federation.envelope import MAX_ENVELOPE_BYTES
from sublet.protocol.federation.relayed import MAX_QUESTION_BYTES
from sublet.protocol.federation.relayed_keys import relayed_between
from sublet.protocol.ids import fingerprint, node_id

pytestmark = pytest.mark.anyio
BOB = KnownNode("node-bob", b"k" * 32, "SHA256:b", "bob")


@dataclass
class Query:
    """A question of a peer."""

    peer: str
    payload: bytes = b"hello"
    replies: list[bytes] = field(default_factory=list)
    dropped: int = 0
    key: str = ""

    def reply(self, payload: bytes) -> None:
        self.replies.append(payload)

    def drop(self) -> None:
        self.dropped += 1


class Bus:
    """A network with one peer, which answers at once or never."""

    def __init__(self, answer: bytes | None = b"yes") -> None:
        self.answer = answer
        self.serving: dict[str, Callable[[Any], None]] = {}
        self.peers = {BOB.id}

    def on_change(self, callback: Callable[[], None]) -> None:
        self.changed = callback

    def serve(self, key: str, callback: Callable[[Any], None]) -> Callable[[], None]:
        self.serving[key] = callback

        def end() -> None:
            del self.serving[key]

        return end

    def linked(self) -> set[str]:
        return self.peers

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


async def test_a_link_that_is_gone_is_seen_as_soon_as_that_is_told() -> None:
    carrier, bus, changes = NodeCarrier(), Bus(), list[bool]()
    carrier.begin(yes, lambda: changes.append(carrier.reaches(BOB)))
    with on(carrier, bus):
        assert carrier.reaches(BOB)
        bus.peers = set()
        bus.changed()
        await anyio.sleep(0.01)
        assert changes == [True, False]
        assert await carrier.ask(BOB, "server", b"") is None


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


class Relay:
    """A relay between daemons, which tells each of what is asked, and answers as it likes."""

    def __init__(self) -> None:
        self.known = True
        self.serving: dict[str, Callable[[Any], None]] = {}
        self.asked: list[tuple[str, bytes]] = []
        self.answers: list[bytes] | None = None
        """What it answers by itself, in place of who is asked."""
        self.given: list[Query] = []

    def on_change(self, callback: Callable[[], None]) -> None: ...

    def serve(self, key: str, callback: Callable[[Any], None]) -> Callable[[], None]:
        self.serving[key] = callback
        return lambda: None

    def linked(self) -> set[str]:
        return {ANYBODY}

    def is_known_at_relay(self) -> bool:
        return self.known

    def ask(self, peer: str, key: str, payload: bytes, seconds: float, heard: Any) -> Callable[[], None]:
        assert peer == ANYBODY
        self.asked.append((key, payload))
        if self.answers is not None:
            for answer in self.answers:
                heard(answer, "x")
            heard(None)
        elif (query := self.bring(key, payload, heard)) is not None:
            self.given.append(query)
        else:
            heard(None)
        return lambda: None

    def bring(self, key: str, payload: bytes, heard: Any = lambda *_: None) -> Query | None:
        """Ask whoever serves a key."""
        take = self.serving.get(f"{key.rpartition('/')[0]}/*")
        if take is None:
            return None

        class Brought(Query):
            def reply(self, payload: bytes) -> None:
                super().reply(payload)
                heard(payload, "x")
                heard(None)

            def drop(self) -> None:
                super().drop()
                heard(None)

        query = Brought(ANYBODY, payload, key=key)
        take(query)
        return query


@dataclass
class Behind:
    """A node behind a relay."""

    name: str
    relay: Relay
    came: list[tuple[What, bytes, str]] = field(default_factory=list)
    knows: dict[str, KnownNode] = field(default_factory=dict)
    now: float = 1_800_000_000.0

    def __post_init__(self) -> None:
        self.key = SigningKey(self.name.encode().ljust(32, b"."))
        public = bytes(self.key.verify_key)
        self.node = KnownNode(node_id(public), public, fingerprint(public), self.name)
        self.carrier = NodeCarrier()
        self.carrier.begin(self.answer, lambda: None, RelayedNodes(self.key, self.knows.get, lambda: self.now))

    async def answer(self, what: What, raw: bytes, link: str) -> bytes:
        self.came.append((what, raw, link))
        return b"taken " + raw


@contextmanager
def joined(relay: Relay, *nodes: Behind) -> Iterator[None]:
    """Attach all to a relay, and pair them."""
    for one in nodes:
        one.knows |= {other.node.id: other.node for other in nodes if other is not one}
    with ExitStack() as stack:
        for one in nodes:
            stack.enter_context(one.carrier.attached(cast(ZenohNetwork, relay)))
        yield


async def test_nodes_that_a_relay_alone_joins_ask_each_other_and_the_relay_reads_nothing() -> None:
    relay = Relay()
    ann, bob = Behind("ann", relay), Behind("bob", relay)
    async with anyio.create_task_group() as group:
        for one in (ann, bob):
            group.start_soon(one.carrier.serve)
        await anyio.sleep(0)
        with joined(relay, ann, bob):
            assert ann.carrier.reaches(bob.node)
            assert await ann.carrier.ask(bob.node, "event", b"secret words") == b"taken secret words"
            assert await bob.carrier.ask(ann.node, "server", b"") == b"taken "
            assert bob.came == [("event", b"secret words", ann.node.id)]
            assert relayed_between(relay.asked[0][0]) == (bob.node.id, ann.node.id)
            seen = [raw for _, raw in relay.asked] + [raw for query in relay.given for raw in query.replies]
            assert len(seen) == 4
            assert not any(b"secret" in raw or b"taken" in raw for raw in seen)
            relay.known = False
            assert not ann.carrier.reaches(bob.node)
            assert await ann.carrier.ask(bob.node, "event", b"x") is None
            assert len(relay.asked) == 2
        group.cancel_scope.cancel()
    assert not ann.carrier._pending
    assert not bob.carrier._pending


async def test_a_relay_that_lies_gets_nothing_done_and_nothing_believed() -> None:
    relay = Relay()
    ann, bob, eve = Behind("ann", relay), Behind("bob", relay), Behind("eve", relay)
    async with anyio.create_task_group() as group:
        for one in (ann, bob):
            group.start_soon(one.carrier.serve)
        await anyio.sleep(0)
        with joined(relay, ann, bob):
            eve.knows |= {one.node.id: one.node for one in (ann, bob)}
            assert await ann.carrier.ask(bob.node, "event", b"once") == b"taken once"
            (key, raw), old = relay.asked[0], relay.given[0].replies[0]
            # Again; to another one; as of another; as another thing; given back; changed; of a stranger; late.
            strange, sealed, _ = eve.carrier._relayed.question(bob.node, "event", b"x")  # type: ignore[union-attr]
            tries = [
                (key, raw),
                (key.replace(bob.node.id, "X").replace(ann.node.id, bob.node.id).replace("X", ann.node.id), raw),
                (key.replace("event", "server"), raw),
                (key, raw[:-1] + bytes([raw[-1] ^ 1])),
                (strange, sealed),
                (strange.replace(eve.node.id, ann.node.id), sealed),
                (f"{key}/more", raw),
            ]
            bob.now += 299  # a clock that is fast is fine so far
            for wire, payload in tries:
                query = relay.bring(wire, payload)
                if query is not None:
                    with anyio.fail_after(10):
                        while not query.dropped:
                            await anyio.sleep(0.002)
                    assert not query.replies
            late, sealed, _ = ann.carrier._relayed.question(bob.node, "event", b"late")  # type: ignore[union-attr]
            bob.now += 2
            query = relay.bring(late, sealed)
            with anyio.fail_after(10):
                while query is not None and not query.dropped:
                    await anyio.sleep(0.002)
            assert [raw for _, raw, _ in bob.came] == [b"once"]
            assert ann.came == []
            # An old answer is none, nor is one of the relay's own; one that is right among them counts.
            relay.answers = [old, b"accepted", b""]
            assert await ann.carrier.ask(bob.node, "event", b"twice") is None
            relay.answers = [b"x"] * 1_000
            assert await ann.carrier.ask(bob.node, "event", b"twice") is None
        group.cancel_scope.cancel()


async def test_what_a_relay_brings_is_bounded_apart_from_what_links_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = Relay()
    ann, bob = Behind("ann", relay), Behind("bob", relay)
    monkeypatch.setattr(node_carrier, "MAX_RELAYED", MAX_PENDING_OF_PEER + 5)
    with joined(relay, ann, bob):
        key = f"ezagent/federation/event/{bob.node.id}/{ann.node.id}"
        large = relay.bring(key, b"x" * (MAX_QUESTION_BYTES + 1))
        assert large is not None
        assert large.dropped == 1
        link = Query(ann.node.id, key=key)
        relay.serving[f"ezagent/federation/event/{bob.node.id}/*"](link)
        assert link.dropped == 1, "on the link of a peer nothing is sealed"
        flood = [relay.bring(key, b"x") for _ in range(MAX_PENDING_OF_PEER + 3)]
        assert [one.dropped for one in flood if one is not None][-4:] == [0, 1, 1, 1]
        others = [relay.bring(key.replace(ann.node.id, f"node-{at:0>16}".replace("0", "a").replace("1", "b")), b"x")
                  for at in range(8)]  # fmt: skip
        assert sum(one.dropped for one in others if one is not None) == 3
        assert bob.carrier._pending[RELAY] == MAX_PENDING_OF_PEER + 5
        assert bob.carrier._pending[ann.node.id] == 0
        await anyio.sleep(0)  # nobody serves, so all of it is dropped
        await anyio.sleep(0)
        assert not bob.carrier._pending


async def test_a_node_that_is_not_paired_is_not_looked_for_behind_the_relay() -> None:
    relay = Relay()
    ann, bob = Behind("ann", relay), Behind("bob", relay)
    listed = replace(bob.node, paired=False)
    with joined(relay, ann, bob):
        assert ann.carrier.reaches(bob.node)
        assert not ann.carrier.reaches(listed)
        assert await ann.carrier.ask(listed, "server", b"") is None
        assert relay.asked == []


class Way:
    """``Carrier`` that reaches everybody, and answers as it is told to."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer

    async def ask(self, node: KnownNode, what: What, payload: bytes) -> bytes | None:
        return self.answer

    def reaches(self, node: KnownNode) -> bool:
        return True


async def test_who_does_not_answer_on_the_bus_is_asked_over_http() -> None:
    assert await Carriers(Way(b"bus"), Way(b"http")).ask(BOB, "server", b"") == b"bus"
    assert await Carriers(Way(None), Way(b"http")).ask(BOB, "server", b"") == b"http"
    assert await Carriers(Way(None), Way(None)).ask(BOB, "server", b"") is None


async def test_a_relay_that_brings_a_question_again_after_a_start_gets_no_answer() -> None:
    ann, bob = Behind("ann", Relay()), Behind("bob", Relay())
    pinned = {ann.node.id: ann.node}.get
    key, raw, _ = RelayedNodes(ann.key, lambda _: None, lambda: ann.now).question(bob.node, "event", b"x")
    assert RelayedNodes(bob.key, pinned, lambda: ann.now).opened("event", key, raw) is not None
    later = iter((ann.now + 5, ann.now + 6))
    assert RelayedNodes(bob.key, pinned, lambda: next(later)).opened("event", key, raw) is None
