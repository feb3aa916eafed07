"""Sessions with one peer each: what is declared goes on all of them, and each peer is asked and told alone."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from sublet.messaging.backends.zenoh_link import SHARED, UPLINK, Link
from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.ports.network import PeerQuery, Priority, Qos, Sample
from support.asked import answers
from support.daemons import wait_for
from support.ports import free_port

DATA = Qos(Priority.DATA, droppable=False)
KEY = "ezagent/room/config/updates"
SECONDS = 20.0


def reply(text: bytes, query: PeerQuery) -> None:
    query.reply(text)


class Star:
    """One network with a session for each of several peers."""

    def __init__(self, stack: ExitStack, *names: str) -> None:
        self.one = ZenohNetwork(Endpoints())
        stack.callback(self.one.close)
        ports = {name: free_port() for name in names}
        self.ends = {name: Endpoints((f"tcp/127.0.0.1:{port}",)) for name, port in ports.items()}
        self.one.join(self.ends)
        self.heard = {name: list[Sample]() for name in names}
        self.others = {name: ZenohNetwork(Endpoints((), (f"tcp/127.0.0.1:{port}",))) for name, port in ports.items()}
        for name, other in self.others.items():
            stack.callback(other.close)
            other.subscribe(KEY, self.heard[name].append)
            for key in (f"ezagent/{name}", "ezagent/all"):
                other.serve(key, partial(reply, name.encode()))
        for name in names:
            wait_for(partial(self.ask, name, f"ezagent/{name}"), what="a declaration")

    def ask(self, name: str, key: str) -> list[bytes]:
        return answers(self.one, key, b"?", SECONDS, name)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def test_each_peer_is_asked_and_told_alone(stack: ExitStack) -> None:
    star = Star(stack, "a", "b", "c")
    assert set(star.one.linked()) == {"a", "b", "c"}
    assert star.ask("a", "ezagent/all") == [b"a"]
    assert star.ask("b", "ezagent/a") == []
    assert star.ask("nobody", "ezagent/all") == []
    star.one.publish(KEY, b"for b", b"", DATA, {"b"})
    star.one.publish(KEY, b"for all", b"", DATA)
    star.one.publish(KEY, b"for nobody", b"", DATA, ())
    wait_for(lambda: all(b"for all" in [one.payload for one in heard] for heard in star.heard.values()), what="all")
    assert [one.payload for one in star.heard["b"]] == [b"for b", b"for all"]
    assert [one.payload for one in star.heard["a"]] == [b"for all"]


def test_who_goes_is_asked_no_more_and_the_others_keep_their_sessions(stack: ExitStack) -> None:
    star = Star(stack, "a", "b")
    before = star.one._links["b"].session
    met = star.one.met()
    assert met.keys() == {"a", "b"}
    changes: queue.SimpleQueue[None] = queue.SimpleQueue()
    star.one.on_change(lambda: changes.put(None))
    star.one.join({"b": star.ends["b"]})
    assert set(star.one.linked()) == {"b"}
    assert star.one.met() == {"b": met["b"]}, "it has not come again"
    assert star.one._links["b"].session is before
    assert star.ask("a", "ezagent/all") == []
    while not changes.empty():
        changes.get()
    star.one.join({"b": star.ends["b"]})
    assert changes.empty(), "nothing has changed"
    star.one.join({})
    assert star.one.met() == {}
    star.one.join({"b": star.ends["b"]})
    wait_for(lambda: star.one.linked(), what="a link")
    assert star.one.met()["b"] > met["b"], "it has come again"


def test_a_session_that_opens_later_has_all_that_was_declared_and_not_what_has_ended(stack: ExitStack) -> None:
    one, port = ZenohNetwork(Endpoints()), free_port()
    stack.callback(one.close)
    end = one.serve("ezagent/ended", lambda query: query.reply(b"never"))
    one.serve("ezagent/there", lambda query: query.reply(b"yes"))
    end()
    one.join({"a": Endpoints((f"tcp/127.0.0.1:{port}",))})
    other = ZenohNetwork(Endpoints((), (f"tcp/127.0.0.1:{port}",)))
    stack.callback(other.close)
    wait_for(lambda: answers(other, "ezagent/there", b"?", SECONDS) == [b"yes"], what="what was declared")
    assert answers(other, "ezagent/ended", b"?", SECONDS) == []


def test_a_peer_whose_session_can_not_be_opened_keeps_no_other_from_its_own(stack: ExitStack) -> None:
    one, taken, port = ZenohNetwork(Endpoints()), ZenohNetwork(Endpoints()), free_port()
    stack.callback(one.close)
    stack.callback(taken.close)
    busy = free_port()
    taken.join({"x": Endpoints((f"tcp/127.0.0.1:{busy}",))})
    wanted = {"a": Endpoints((f"tcp/127.0.0.1:{busy}",)), "b": Endpoints((f"tcp/127.0.0.1:{port}",))}
    with pytest.raises(OSError, match=str(busy)):
        one.join(wanted)
    other = ZenohNetwork(Endpoints((), (f"tcp/127.0.0.1:{port}",)))
    stack.callback(other.close)
    wait_for(lambda: "b" in one.linked(), what="the link")
    taken.close()
    one.join(wanted)
    assert one._links["a"].session is not None


def test_links_that_prove_nobody_are_told_apart() -> None:
    assert [Link(lambda: None, name, {}).proves_none for name in (SHARED, UPLINK, "node")] == [True, True, False]
