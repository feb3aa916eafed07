"""The engine's thread: nobody waits for ever, whatever fails."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import pytest

from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.engine.engine import Engine
from sublet.messaging.ports.network import PeerQuery, Sample
from sublet.messaging.ports.outbox import Outgoing
from sublet.messaging.ports.rows import Batch
from sublet.messaging.running import sender as sender_module
from sublet.messaging.running.owner import Owner
from sublet.messaging.running.sender import Reply
from sublet.messaging.schema.datatypes import QOS_DATA
from sublet.protocol.errors import SubletError
from support.asked import answers
from support.memory_network import MemoryHub
from support.ports import free_port
from support.rooms import NOW_MS, MemoryBlobs, local_entity

SECONDS = 30
SAMPLES = 100
ResultT = TypeVar("ResultT")


class FullDisk(SqliteStore):
    """A store whose disk is full when it is told to be."""

    full = False

    def write(self, batch: Batch) -> None:
        if self.full:
            raise OSError("disk full")
        super().write(batch)


def no_answer(engine: Engine, query: PeerQuery) -> None:
    """Know nothing."""


def made(store: SqliteStore) -> Engine:
    return Engine(Registry(BUILT_INS), store, [local_entity("alice", 1)], lambda: NOW_MS, MemoryBlobs())


def ask(owner: Owner, run: Callable[[Engine], ResultT]) -> ResultT:
    promise: Future[ResultT] = Future()
    owner.call(run, promise)
    return promise.result(SECONDS)


def test_a_call_whose_commit_fails_says_so_and_the_next_one_works() -> None:
    store = FullDisk(None)
    owner = Owner(lambda: made(store), MemoryHub().join(), no_answer, lambda outcome: None)
    owner.start(lambda: None)
    me = local_entity("alice", 1).record.entity_id

    def create(engine: Engine) -> str:
        return str(
            run_operation(engine.registry.operations, engine.operating, me, "room.create", {"name": "r"})["room_id"]
        )

    room = ask(owner, create)
    store.full = True
    with pytest.raises(OSError, match="disk full"):
        ask(owner, create)
    store.full = False
    assert ask(owner, create) != room
    assert (
        len(ask(owner, lambda engine: run_operation(engine.registry.operations, engine.operating, me, "room.list", {})))
        == 2
    )
    owner.stop()
    with pytest.raises(SubletError, match="stopped"):
        ask(owner, create)


def test_c39_callbacks_of_the_network_go_on_while_the_engine_is_busy() -> None:
    port, key = free_port(), "ezagent/room/config/updates"
    engine_goes_on, heard = threading.Event(), queue.SimpleQueue[Sample]()
    listening = ZenohNetwork(Endpoints((f"tcp/127.0.0.1:{port}",)))
    speaking = ZenohNetwork(Endpoints((), (f"tcp/127.0.0.1:{port}",)))
    owner = Owner(lambda: made(SqliteStore(None)), listening, no_answer, lambda outcome: None)
    owner.start(lambda: None)
    busy: Future[bool] = Future()
    owner.call(lambda engine: engine_goes_on.wait(SECONDS), busy)
    try:
        listening.subscribe(key, owner.heard)
        listening.subscribe("ezagent/after", heard.put)
        there = listening.serve("ezagent/there", lambda query: query.reply(b""))
        while not answers(speaking, "ezagent/there", b"", SECONDS):  # declared last: then all is
            time.sleep(0.01)
        there()
        for _ in range(SAMPLES):
            speaking.publish(key, b"no envelope", b"", QOS_DATA)
        speaking.publish("ezagent/after", b"", b"", QOS_DATA)
        assert heard.get(timeout=SECONDS).key == "ezagent/after", "the one thread of Zenoh waits for no engine"
        assert not busy.done()
        engine_goes_on.set()
        assert busy.result(SECONDS)
        while ask(owner, lambda engine: sum(engine.intake.counts.values())) < SAMPLES:
            time.sleep(0.01)
    finally:
        engine_goes_on.set()
        owner.stop()
        for network in (speaking, listening):
            network.close()


def test_an_engine_that_can_not_be_made_is_an_error_of_the_start() -> None:
    def fail() -> Engine:
        raise OSError("no such directory")

    owner = Owner(fail, MemoryHub().join(), no_answer, lambda outcome: None)
    with pytest.raises(OSError, match="no such directory"):
        owner.start(lambda: None)
    owner.stop()


class SlowQuery:
    """A query whose answer no link takes until it is let."""

    def __init__(self, goes: threading.Event) -> None:
        self.key, self.payload, self.peer = "key", b"", ""
        self.goes = goes
        self.became: Future[str] = Future()

    def reply(self, payload: bytes) -> None:
        self.goes.wait(SECONDS)
        self.became.set_result("answered")

    def drop(self) -> None:
        self.became.set_result("dropped")


def test_answers_that_no_link_takes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "MAX_ANSWERS_BYTES", 1_700)
    store = SqliteStore(None)
    owner = Owner(
        lambda: made(store), MemoryHub().join(), lambda engine, query: Reply(query.key, bytes(44)), lambda outcome: None
    )
    owner.start(lambda: None)
    goes = threading.Event()
    queries = [SlowQuery(goes) for _ in range(20)]
    for query in queries:
        owner.asked(query)
    ask(owner, lambda engine: None)
    ask(owner, lambda engine: None)
    dropped = [query for query in queries if query.became.done()]
    assert len(dropped) in (16, 17), "one may be on its way beside those three that wait"
    goes.set()
    assert {query.became.result(SECONDS) for query in queries if query not in dropped} == {"answered"}
    late = SlowQuery(goes)
    owner.asked(late)
    assert late.became.result(SECONDS) == "answered"
    owner.stop()


def test_a_peer_that_asks_much_and_takes_nothing_leaves_room_for_the_answers_of_others() -> None:
    size = 1 << 20
    goes = threading.Event()
    greedy, modest = [SlowQuery(goes) for _ in range(80)], [SlowQuery(goes) for _ in range(3)]
    sender = sender_module.Sender(MemoryHub().join(), SECONDS)
    for query in greedy:
        sender.reply(query, Reply("greedy", bytes(size)))
    kept = [query for query in greedy if not query.became.done()]
    assert len(kept) == sender_module.MAX_ANSWERS_BYTES_OF_PEER // size - 1
    for query in modest:
        sender.reply(query, Reply("modest", bytes(size)))
    assert not any(query.became.done() for query in modest)
    for number in range(100):  # many names do not help: their newest answers go, and not those of others
        sender.reply(SlowQuery(goes), Reply(f"name-{number % 5}", bytes(size)))
    assert not any(query.became.done() for query in modest)
    assert sender._answers.size <= sender_module.MAX_ANSWERS_BYTES
    goes.set()
    sender.start()
    assert {query.became.result(SECONDS) for query in modest} == {"answered"}
    sender.stop()


def test_what_is_published_and_what_is_answered_take_turns() -> None:
    taken: list[str] = []

    class Noting(SlowQuery):
        def reply(self, payload: bytes) -> None:
            taken.append("answer")
            self.became.set_result("answered")

    network = MemoryHub().join()
    sender = sender_module.Sender(network, SECONDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "publish", lambda *_: taken.append("published"))
        sender.send([Outgoing(f"k{number}", b"x", b"", QOS_DATA) for number in range(3)])
        queries = [Noting(threading.Event()) for _ in range(3)]
        for query in queries:
            sender.reply(query, Reply("peer", b"x"))
        sender.start()
        sender.stop()
    assert sorted(taken[:2]) == sorted(taken[2:4]) == sorted(taken[4:]) == ["answer", "published"]


def test_what_a_link_does_not_take_is_bounded_in_bytes() -> None:
    sender = sender_module.Sender(MemoryHub().join(), SECONDS)
    for number in range(40):
        sender.send([Outgoing(f"k{number}", bytes(1 << 20), b"", QOS_DATA)])
    kept = [one.key for one in sender._waiting]
    assert kept == [f"k{number}" for number in range(8, 40)]
    assert sender._outgoing == sender_module.MAX_OUTGOING_BYTES == 32 << 20
