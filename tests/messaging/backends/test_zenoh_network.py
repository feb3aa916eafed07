"""What Zenoh does that one has to know: each trap as a test, on the loopback."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
import zenoh

from sublet.messaging.backends import zenoh_network
from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.ports.network import PeerQuery, Priority, Qos, Sample
from support.asked import answers as answers_of
from support.memory_network import matches
from support.ports import free_port

VECTORS = Path(__file__).parents[2] / "protocol" / "ezagent" / "vectors"
DATA = Qos(Priority.DATA, droppable=False)
KEY = "ezagent/room/config/updates"
SECONDS = 20.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Return a stack that closes what a test opens."""
    with ExitStack() as entered:
        yield entered


def network(stack: ExitStack, *connect: int) -> tuple[ZenohNetwork, int]:
    port = free_port()
    listen, dial = (tuple(f"tcp/127.0.0.1:{number}" for number in numbers) for numbers in ((port,), connect))
    opened = ZenohNetwork(Endpoints(listen, dial))
    stack.callback(opened.close)
    return opened, port


def until(holds: Callable[[], bool], network: ZenohNetwork) -> None:
    """Wait for a condition, looking again whenever a link changed and now and then."""
    changed = threading.Event()
    network.on_change(changed.set)
    for _ in range(200):
        if holds():
            return
        changed.wait(0.1)
        changed.clear()
    raise AssertionError("it never came to that")


def ask(network: ZenohNetwork, key: str, answers: int = 1) -> list[bytes]:
    """Ask until so many have answered: a declaration takes its time to reach the other side."""
    found: list[bytes] = []

    def asked() -> bool:
        found[:] = answers_of(network, key, b"?", SECONDS)
        return len(found) >= answers

    until(asked, network)
    return found


def echo(network: ZenohNetwork, key: str, text: bytes) -> None:
    served: queue.SimpleQueue[PeerQuery] = queue.SimpleQueue()

    def answer() -> None:
        while True:
            served.get().reply(text)

    threading.Thread(target=answer, daemon=True).start()
    network.serve(key, served.put)


def test_what_is_published_comes_with_its_attachment_and_not_to_oneself(stack: ExitStack) -> None:
    one, port = network(stack)
    other, _ = network(stack, port)
    heard: queue.SimpleQueue[Sample] = queue.SimpleQueue()
    own: queue.SimpleQueue[Sample] = queue.SimpleQueue()
    other.subscribe(KEY, heard.put)
    one.subscribe(KEY, own.put)
    echo(other, "ezagent/ready", b"yes")  # declared after the subscription, on the same link
    ask(one, "ezagent/ready")
    one.publish(KEY, b"payload", b"attachment", DATA)
    assert heard.get(timeout=SECONDS) == Sample(KEY, b"payload", b"attachment")
    assert own.empty()


def test_every_answer_is_returned(stack: ExitStack) -> None:
    one, port = network(stack)
    for name in (b"a", b"b"):
        other, _ = network(stack, port)
        echo(other, "ezagent/room/index/*/state", name)
    assert sorted(ask(one, "ezagent/room/index/2026-11/state", answers=2)) == [b"a", b"b"]


def test_nobody_answers_at_once_where_nobody_is(stack: ExitStack) -> None:
    one, _ = network(stack)
    assert answers_of(one, "ezagent/room/config/state", b"", SECONDS) == []


def test_a_key_with_an_entity_is_matched_exactly_only(stack: ExitStack) -> None:
    one, port = network(stack)
    other, _ = network(stack, port)
    key = "ezagent/room/ephemeral/presence/@alice:a"
    echo(other, "ezagent/room/ephemeral/presence/*", b"wildcard")
    echo(other, "ezagent/ready", b"yes")
    ask(one, "ezagent/ready")
    assert answers_of(one, key, b"", SECONDS) == []
    echo(other, key, b"exact")
    assert ask(one, key) == [b"exact"]


@pytest.mark.parametrize("case", json.loads((VECTORS / "zenoh-keyexpr-cases.json").read_text())["matching"])
def test_key_expressions_match_as_measured(case: dict[str, object]) -> None:
    pattern, key = str(case["pattern"]), str(case["key"])
    assert zenoh.KeyExpr(pattern).includes(zenoh.KeyExpr(key)) is case["includes"]
    if "**" not in pattern:
        assert matches(pattern, key) is case["includes"]


def test_nothing_listens_but_where_it_is_told_to(stack: ExitStack) -> None:
    before = open_addresses()
    _, port = network(stack)
    assert open_addresses() - before == {("127.0.0.1", port)}


def open_addresses() -> set[tuple[str, int]]:
    """Return where this process listens, and where it has datagram sockets, as for multicast."""
    sockets = psutil.Process().net_connections("inet")
    found = [item.laddr for item in sockets if item.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)]
    return {(str(getattr(address, "ip", "")), int(getattr(address, "port", 0))) for address in found}


def test_a_port_that_is_taken_is_an_error(stack: ExitStack) -> None:
    _, port = network(stack)
    with pytest.raises(OSError, match=str(port)):
        ZenohNetwork(Endpoints((f"tcp/127.0.0.1:{port}",)))


def test_links_that_come_and_go_are_told(stack: ExitStack) -> None:
    one, port = network(stack)
    changes: queue.SimpleQueue[None] = queue.SimpleQueue()
    one.on_change(lambda: changes.put(None))
    other = ZenohNetwork(Endpoints((), (f"tcp/127.0.0.1:{port}",)))
    changes.get(timeout=SECONDS)
    until(lambda: one.peers() == 1, one)
    other.close()
    until(lambda: one.peers() == 0, one)


def test_whom_to_call_can_change_and_what_was_declared_stays(stack: ExitStack) -> None:
    told, (first, _) = threading.Event(), network(stack)
    heard: queue.SimpleQueue[Sample] = queue.SimpleQueue()
    first.subscribe(KEY, heard.put)
    first.on_change(told.set)
    second, port = network(stack)
    first.call((f"tcp/127.0.0.1:{port}",))
    assert told.is_set()
    until(lambda: first.peers() == 1 == second.peers(), first)
    until(lambda: _published(second, heard), first)
    first.call(())
    until(lambda: second.peers() == 0, second)


def _published(sender: ZenohNetwork, heard: queue.SimpleQueue[Sample]) -> bool:
    """Publish, and tell whether something was heard: who subscribes is known a moment after the link."""
    sender.publish(KEY, b"hello", b"", DATA)
    return not heard.empty()


def test_a_process_that_closes_its_session_ends() -> None:
    code = (
        "from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork\n"
        f"network = ZenohNetwork(Endpoints(('tcp/127.0.0.1:{free_port()}',), (), ('tcp/127.0.0.1:{free_port()}',)))\n"
        "network.subscribe('ezagent/room/config/updates', print)\n"
        "network.close()\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_token_is_followed_under_its_exact_key_and_goes_with_its_session(stack: ExitStack) -> None:
    key = "ezagent/room/ephemeral/presence/@alice:node"
    first, _ = network(stack)
    told: queue.SimpleQueue[bool] = queue.SimpleQueue()
    first.follow(key, told.put)
    second, port = network(stack)
    end = second.announce(key)
    first.call((f"tcp/127.0.0.1:{port}",))
    assert told.get(timeout=SECONDS) is True, "it was there before the link was"
    end()
    assert told.get(timeout=SECONDS) is False
    second.announce(key)
    second.announce(key.replace("alice", "bob"))
    assert told.get(timeout=SECONDS) is True
    second.close()
    assert told.get(timeout=SECONDS) is False
    assert told.empty()


def test_who_answers_one_question_without_end_leaves_room_for_others(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zenoh_network, "MAX_REPLIES_OF_ONE", 5)
    one, port = network(stack)
    hostile, _ = network(stack, port)
    honest, _ = network(stack, port)
    begun = threading.Event()

    def babble(query: PeerQuery) -> None:
        for _ in range(200):
            query._query.reply(KEY, bytes(10))  # type: ignore[attr-defined]
        begun.set()
        query.drop()

    def late(query: PeerQuery) -> None:
        begun.wait(SECONDS)
        begun.clear()
        query.reply(b"honest")

    hostile.serve(KEY, babble)
    honest.serve(KEY, late)
    assert sorted(ask(one, KEY, answers=6)) == [bytes(10)] * 5 + [b"honest"]


def test_who_answers_one_question_without_end_fills_no_memory(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zenoh_network, "MAX_REPLIES", 10)
    one, port = network(stack)
    config = zenoh.Config()
    for name, value in {
        "mode": "peer",
        "connect/endpoints": [f"tcp/127.0.0.1:{port}"],
        "listen/endpoints": [],
        "scouting/multicast/enabled": False,
    }.items():
        config.insert_json5(name, json.dumps(value))
    hostile = zenoh.open(config)
    stack.callback(hostile.close)

    def babble(query: zenoh.Query) -> None:
        with query:
            for number in range(2_000):
                query.reply(KEY, number.to_bytes(2, "big"))

    served = hostile.declare_queryable(KEY, babble)
    stack.callback(served.undeclare)
    assert ask(one, KEY, answers=10) == [number.to_bytes(2, "big") for number in range(10)]
    other, _ = network(stack, port)
    echo(other, "ezagent/ready", b"yes")
    assert ask(one, "ezagent/ready") == [b"yes"]
