"""Asking peers side by side: who is waited for, what comes late, and what a share of junk costs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest

from sublet.messaging.ports.network import ANYBODY, Heard, Network
from sublet.messaging.syncing import asking, shares
from sublet.messaging.syncing.asking import Answer, Asking
from sublet.messaging.syncing.shares import Failure
from sublet.protocol.ezagent.errors import malformed

pytestmark = pytest.mark.anyio
SECONDS = 30
NEVER = 3_600.0


class Network_:
    """Peers that answer when a test says so."""

    def __init__(self, *peers: str) -> None:
        self.peers = list(peers)
        self.asked: list[str] = []
        self.ended: list[str] = []
        self.heard: dict[str, Heard] = {}
        self.at_once: dict[str, list[bytes]] = {}

    def linked(self) -> Collection[str]:
        return self.peers

    def ask(self, peer: str, key: str, payload: bytes, timeout_seconds: float, heard: Heard) -> Callable[[], None]:
        """Answer at once what a test has said, and otherwise later."""
        self.asked.append(peer)
        self.heard[peer] = heard
        if peer in self.at_once:
            for answer in self.at_once[peer]:
                heard(answer, answer.decode(errors="replace"))
            heard(None)
        return lambda: self.ended.append(peer)


def opens(raw: bytes) -> str:
    if raw.startswith(b"junk"):
        raise malformed("says nothing")
    return raw.decode()


@asynccontextmanager
async def asker(network: Network_, recovered: Callable[[], object] = lambda: None) -> AsyncIterator[Asking]:
    made = Asking(cast("Network", network), recovered)
    async with anyio.create_task_group() as group:
        made.begin(group)
        with anyio.fail_after(SECONDS):
            yield made
        group.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANSWER_SECONDS", "LAST_SECONDS", "ANYBODY_SECONDS"):
        monkeypatch.setattr(asking, name, NEVER)
    monkeypatch.setattr(asking, "GRACE_SECONDS", 0.05)


async def test_all_who_may_answer_are_asked_and_nobody_else() -> None:
    network = Network_("a", "b", "c")
    network.at_once = {"a": [b"one"], "b": [], "c": [b"three"]}
    async with asker(network) as made:
        found = await made.ask("k", b"?", {"a", "b"}, opens)
        assert found == [Answer("a", "one")]
        assert sorted(network.asked) == ["a", "b"]
        found = await made.ask("k", b"?", None, opens)
        assert sorted(answer.peer for answer in found) == ["a", "c"]


async def test_what_comes_late_is_handed_on_and_its_peer_is_not_waited_for_meanwhile() -> None:
    network, came, late = Network_("a", "slow"), anyio.Event(), list[Answer[str]]()
    network.at_once = {"a": [b"one"]}

    async def take(answer: Answer[str]) -> None:
        late.append(answer)
        came.set()

    async with asker(network) as made:
        assert await made.ask("k", b"?", None, opens, take) == [Answer("a", "one")]
        first = network.heard["slow"]
        asking.GRACE_SECONDS, before = NEVER, asking.GRACE_SECONDS  # type: ignore[misc]
        try:
            made._put_at["slow"] = dict.fromkeys(
                made._put_at["slow"], anyio.current_time() - 2 * asking.MAX_GRACE_SECONDS
            )
            assert await made.ask("k", b"?", None, opens, take) == [Answer("a", "one")]
        finally:
            asking.GRACE_SECONDS = before  # type: ignore[misc]
        first(b"after all")
        await came.wait()
        assert late == [Answer("slow", "after all")]
        assert not made.asked_last()


async def test_the_only_one_is_waited_for() -> None:
    network = Network_("slow")
    async with asker(network) as made, anyio.create_task_group() as group:
        found: list[Answer[str]] = []

        async def ask() -> None:
            found.extend(await made.ask("k", b"?", None, opens))

        group.start_soon(ask)
        while "slow" not in network.heard:
            await anyio.sleep(0.01)
        network.heard["slow"](b"there")
        while not found:
            await anyio.sleep(0.01)
    assert found == [Answer("slow", "there")]


async def test_of_a_peer_the_first_answer_counts_and_junk_is_its_failure() -> None:
    network = Network_("a", "junk")
    network.at_once = {"a": [b"one", b"two"], "junk": [b"junk", b"and what is right"]}
    async with asker(network) as made:
        assert await made.ask("k", b"?", None, opens) == [Answer("a", "one")]
        assert made.asked_last() == {"junk": Failure.JUNK}
        await made.ask("k", b"?", None, opens)
        assert network.asked.count("junk") == 1, "asked last, and not yet"


async def test_those_of_whom_nobody_knows_who_they_are_are_heard_beside_the_junk_of_others() -> None:
    network = Network_(ANYBODY)
    network.at_once = {ANYBODY: [*(b"junk %d" % number for number in range(500)), b"one", b"two"]}
    async with asker(network) as made:
        found = await made.ask("k", b"?", {"a"}, opens)
        assert sorted(answer.said for answer in found) == ["one", "two"]
        assert not made.asked_last(), "laid at nobody's door"


async def test_who_was_asked_last_and_answers_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "FIRST_PAUSE_SECONDS", 0.0)
    network, recovered = Network_("a"), anyio.Event()
    network.at_once = {"a": [b"junk"]}
    async with asker(network, recovered.set) as made:
        assert await made.ask("k", b"?", None, opens) == []
        assert "a" in made.asked_last()
        network.at_once = {"a": [b"one"]}
        assert await made.ask("k", b"?", None, opens) == [], "nobody waits for it"
        await recovered.wait()
        assert not made.asked_last()
        assert await made.ask("k", b"?", None, opens) == [Answer("a", "one")]


async def test_who_forges_is_asked_last() -> None:
    network = Network_("a")
    network.at_once = {"a": [b"one"]}
    async with asker(network) as made:
        made.forged("a", 100)
        made.forged(ANYBODY, 100)
        assert made.asked_last() == {"a": Failure.FORGED}


async def test_a_question_that_nobody_answers_is_ended_with_the_service() -> None:
    network = Network_("slow")
    async with asker(network) as made, anyio.create_task_group() as group:
        group.start_soon(made.ask, "k", b"?", None, opens)
        while "slow" not in network.heard:
            await anyio.sleep(0.01)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert network.ended == ["slow"]
