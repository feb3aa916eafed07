"""The operations on nodes: who there is, whom a name means, and a task that is given."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from sublet.daemon.api.federation import (
    AskAgent,
    Broadcast,
    FailedTask,
    Find,
    ListBroadcasts,
    TaskAnswer,
    TaskBegun,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.sessions import AskAnswer, AskBegun, AskOutput
from sublet.daemon.federation.finding import Finding
from sublet.daemon.federation.service import FederationParts, FederationService
from sublet.daemon.federation.settings_file import SettingsFile
from sublet.daemon.storage.journal import Journal
from sublet.federation.ports import OwnAgent
from sublet.federation.settings import PeerSettings, Settings
from sublet.node_http.listed import ListedNodes
from sublet.policy.config import parse
from sublet.policy.decision import Action, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.protocol.chain import Chain
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventKind
from sublet.protocol.federation.addresses import AgentAddress, node_name
from support.decisions import gatekeeper
from support.federation_world import Node, World, until

pytestmark = pytest.mark.anyio
HUMAN = Subject("human")
B = "worker-1@bob.local"


def service(node: Node, *rules: dict[str, Any], settings: Settings | None = None) -> FederationService:
    """Return the service of a node; its own agents answer with what they were asked."""
    policy = Policy(Protected(Path("/nowhere")), parse({"version": 1, "global": list(rules)}))

    async def ask(
        agent_id: str, text: str, caller: Subject, owner: str, chain: Chain
    ) -> AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]:
        yield AskOutput(stream="stdout", text="working")
        yield AskAnswer(
            finger_session_id="s", request_id="r", route_decision="dispatch_agent", result=f"{owner}: {text}"
        )

    gate = gatekeeper(cast(Journal, None), policy, None)
    now = settings or node.settings
    return FederationService(
        FederationParts(
            gate=gate,
            federation=node.federation,
            finding=Finding(gate, node.federation),
            settings=SettingsFile(Path("/nowhere/federation.toml"), now),
            agents=lambda: list(node.agents),
            ask=ask,
            chain_of=lambda _: Chain(),
            max_depth=4,
            wall=lambda: node.world.wall,
            said=said_by(node),
            http=Http(now),
        )
    )


def finding_of(node: Node, *rules: dict[str, Any]) -> Finding:
    """Return what finds agents from a node."""
    policy = Policy(Protected(Path("/nowhere")), parse({"version": 1, "global": list(rules)}))
    return Finding(gatekeeper(cast(Journal, None), policy, None), node.federation)


def said_by(node: Node) -> Callable[[EventKind, int], Awaitable[list[Event]]]:
    """Return what returns the messages to all that a node has written down."""

    async def said(kind: EventKind, limit: int) -> list[Event]:
        found = [dict(data) for what, data in node.told if what == "message"][-limit:]
        return [Event(seq=1, at="2026-11-28T10:00:00Z", kind=kind, data=data) for data in found]

    return said


class Http:
    """HTTP that is switched off, or reaches nobody."""

    address, remark = "", "its port is taken"

    def __init__(self, settings: Settings) -> None:
        self._listed = ListedNodes(lambda: settings, set, lambda: None)

    def why_not(self, peer: PeerSettings) -> str:
        """Return why."""
        return self._listed.why_not(peer)


class Told:
    """A journal that is told events."""

    def __init__(self) -> None:
        self.events = self
        self.kinds: list[str] = []

    async def append_event(self, kind: str, *given: object, **named: object) -> None:
        """Take one."""
        self.kinds.append(str(kind))


async def asked(found: FederationService, caller: Subject = HUMAN, **request: Any) -> TaskAnswer:
    updates = [one async for one in found.ask(AskAgent.model_validate(request), caller)]
    assert isinstance(updates[0], TaskBegun)
    assert isinstance(updates[-1], TaskAnswer)
    return updates[-1]


async def test_nodes_and_agents_are_listed_and_a_peer_that_is_not_paired_is_off_with_the_reason() -> None:
    world = World()
    ann, bob = world.add("ann"), world.add("bob")
    settings = Settings(peers=[PeerSettings(node_id="kitchen.local", url="http://kitchen.local:7676")])
    found = service(ann, settings=settings)
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        here, other, off = await found.nodes(Nothing(), HUMAN)
        assert (here.node_id, here.state, here.agents) == ("ann.local", "here", 1)
        assert (other.node_id, other.peer, other.state, other.agents) == ("bob.local", "bob", "reached", 1)
        assert (off.node_id, off.state) == ("kitchen.local", "off")
        assert "sublet pair" in off.why_not
        assert "allow_plaintext" in off.why_not
        assert (off.url, here.why_not) == ("http://kitchen.local:7676", "its port is taken")
        agents = await found.agents(Nothing(), HUMAN)
        assert [(one.address, one.peer, one.status) for one in agents] == [
            ("worker-1@ann.local", None, "idle"),
            (B, "bob", "idle"),
        ]
        assert agents[1].capabilities == ["test"]


async def test_a_node_of_the_file_that_is_hidden_is_not_listed_before_it_is_reached_either() -> None:
    world = World()
    settings = Settings(peers=[PeerSettings(node_id=name, url=f"https://{name}:7676") for name in ("cat", "dog")])
    hides = {"id": "no", "effect": "deny", "action": "delegation.create", "resource": "cat", "hide": True}
    found = service(world.add("ann"), hides, settings=settings)
    assert [one.node_id for one in await found.nodes(Nothing(), HUMAN)] == ["ann.local", "dog"]


async def test_a_name_means_one_agent_and_a_capability_the_best_that_may_be_used() -> None:
    world = World()
    ann, bob, cat = world.add("ann", "boss"), world.add("bob"), world.add("cat", "worker-2")
    found = service(ann)
    async with world.running(ann, bob, cat):
        await until(lambda: len(ann.addresses()) == 2)
        assert (await found.find(Find(to=B), HUMAN)).peer == "bob"
        assert (await found.find(Find(to="worker-2"), HUMAN)).address == "worker-2@cat.local"
        assert (await found.find(Find(to="boss"), HUMAN)).peer is None
        ann.federation.table.named("worker-1")[bob.own.name].status = "busy"
        best = await found.find(Find(to="capability:TEST"), HUMAN)
        assert (best.peer, best.agent_id) == ("cat", "worker-2")
        assert "idle" in best.why
        denied = {"id": "no", "effect": "deny", "action": "delegation.create", "resource": "cat"}
        assert (await service(ann, denied).find(Find(to="capability:test"), HUMAN)).peer == "bob"
        for unknown in ("capability:cook", "nobody"):
            with pytest.raises(SubletError) as refused:
                await found.find(Find(to=unknown), HUMAN)
            assert refused.value.code is LocalCode.NOT_FOUND
        hidden = {**denied, "resource": "bob", "hide": True}
        assert (await service(ann, hidden).find(Find(to=B), HUMAN)).peer is None
        with pytest.raises(SubletError) as refused:
            await service(ann, {**hidden, "resource": "cat"}).find(Find(to="worker-2"), HUMAN)
        assert refused.value.code is LocalCode.NOT_FOUND
        assert "cat" not in refused.value.message + refused.value.hint


async def test_a_task_is_given_here_and_elsewhere_with_all_that_was_said() -> None:
    world = World()
    ann, bob = world.add("ann", "boss"), world.add("bob")
    found = service(ann)
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        there = await asked(found, to=B, text="the dishes", context="in the sink", timeout_seconds=7)
        assert (there.result, there.agent_id) == ("worker-1 did the dishes", "worker-1")
        [sent] = [raw for _, what, raw in ann.sent if what == "event" and b"task.request" in raw]
        assert b'"context":"in the sink"' in sent
        assert b'"timeout_secs":7' in sent
        here = await asked(found, to="boss", text="plan", context="for today")
        assert here.result == "human: plan\n\nContext:\nfor today"
        gone = await asked(found, to="nobody@ann.local", text="it")
        assert isinstance(gone.result, FailedTask)
        assert gone.result.metadata["error_code"] == "AGENT_NOT_FOUND"
        assert gone.warnings
        unknown = await asked(found, to="x@dan.local", text="it")
        assert isinstance(unknown.result, FailedTask)
        assert unknown.result.metadata["error_code"] == "NODE_UNREACHABLE"
        late = await asked(found, to="later@bob.local", text="it", timeout_seconds=1, wait=True)
        assert isinstance(late.result, FailedTask)
        assert late.result.metadata["error_code"] == "AGENT_NOT_FOUND"  # it was waited for, and did not come


@pytest.mark.parametrize("denied", [B, "worker-1@bob"])
@pytest.mark.parametrize("typed", [B, "worker-1@bob", "worker-1", "WORKER-1@BOB", "capability:test"])
async def test_a_deny_of_an_agent_holds_whatever_it_is_called(typed: str, denied: str) -> None:
    world = World()
    ann, bob = world.add("ann", "boss"), world.add("bob")
    bob_agent = {"id": "no", "effect": "deny", "action": "agent.ask", "resource": denied}
    found, journal = service(ann, bob_agent), Told()
    found._gate._journal = cast(Journal, journal)
    async with world.running(ann, bob):
        await until(lambda: ann.federation.best("test", lambda *_: True))
        with pytest.raises(SubletError) as refused:
            await asked(found, to=typed, text="it")
        assert refused.value.code is LocalCode.POLICY_DENIED
        assert journal.kinds == ["policy_rejected"]
        assert not [raw for _, what, raw in ann.sent if what == "event" and b"task.request" in raw]


async def test_who_may_ask_by_one_name_need_not_be_allowed_by_the_others() -> None:
    world = World()
    ann, bob = world.add("ann", "boss"), world.add("bob")
    rule = {"id": "one", "effect": "allow", "action": "agent.ask", "resource": "worker-1@bob"}
    found = service(ann, {**rule, "subject": {"kind": "agent"}})
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        assert (await asked(found, Subject("agent", "boss"), to="worker-1@bob", text="it")).result == "worker-1 did it"


async def test_a_panel_gets_agents_of_as_many_nodes_as_there_are_or_those_that_are_named() -> None:
    world = World()
    ann, bob, cat = world.add("ann", "boss"), world.add("bob"), world.add("cat", "worker-2")
    bob.agents |= {OwnAgent("worker-9", "claude", ("test",)): False}
    finding = finding_of(ann)
    async with world.running(ann, bob, cat):
        await until(lambda: len(ann.addresses()) == 3)
        ann.federation.table.named("worker-2")[cat.own.name].status = "busy"
        two = finding.several("capability:test", 2, HUMAN)
        assert {one.peer for one in two} == {"bob", "cat"}, "another node comes before a second agent of one"
        assert "the first of 3" in two[0].why
        assert [one.peer for one in finding.several("capability:test", 3, HUMAN)].count("bob") == 2
        named = finding.several("worker-1@bob, worker-2", 2, HUMAN)
        assert [one.address for one in named] == ["worker-1@bob", "worker-2@cat.local"]
        for to, wanted, code in (
            ("capability:test", 4, LocalCode.INVALID_ARGUMENT),
            ("capability:none", 2, LocalCode.NOT_FOUND),
            ("worker-1@bob", 2, LocalCode.INVALID_ARGUMENT),
            ("worker-1@bob,nobody", 2, LocalCode.NOT_FOUND),
        ):
            with pytest.raises(SubletError) as refused:
                finding.several(to, wanted, HUMAN)
            assert refused.value.code == code
        denied = {"id": "no", "effect": "deny", "action": "delegation.create", "resource": "cat"}
        assert {one.peer for one in finding_of(ann, denied).several("capability:test", 2, HUMAN)} == {"bob"}


async def test_what_is_said_to_all_is_said_as_who_says_it_and_only_to_whom_the_caller_may_know() -> None:
    world = World()
    ann, bob, cat = world.add("ann"), world.add("bob"), world.add("cat")
    hides = {"id": "no", "effect": "deny", "action": "delegation.create", "resource": "cat", "hide": True}
    found = service(ann, hides)
    async with world.running(ann, bob, cat):
        await until(lambda: len(ann.addresses()) == 2)
        sent = await found.broadcast(Broadcast(text="tea"), HUMAN)
        assert [(one.peer, one.why_not) for one in sent.heard] == [("bob", "")]
        assert (sent.room_id, sent.from_agent) == ("!agent-broadcast:ann.local", "human@ann.local")
        [heard] = await service(bob).broadcasts(ListBroadcasts(), HUMAN)
        assert (heard.from_agent, heard.peer, heard.text) == ("human@ann.local", "ann", "tea")
        [own] = await found.broadcasts(ListBroadcasts(), HUMAN)
        assert (own.peer, own.message_type) == (None, "announcement")
        await found.broadcast(Broadcast(text="no more tea", message_type="warning"), HUMAN)
        [last] = await service(bob).broadcasts(ListBroadcasts(limit=1), HUMAN)
        assert (last.text, last.message_type) == ("no more tea", "warning")
        ann.settings = ann.settings.model_validate({"enabled": False})
        with pytest.raises(SubletError, match="off here"):
            await found.broadcast(Broadcast(text="tea"), HUMAN)


async def test_a_task_takes_as_long_as_the_file_says_where_nobody_says_otherwise() -> None:
    world = World()
    ann, bob = world.add("ann"), world.add("bob")
    found = service(ann, settings=Settings(default_task_timeout_secs=77))
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        await asked(found, to=B, text="it")
        await asked(found, to=B, text="it", timeout_seconds=5)
    said = [json.loads(raw)["content"] for _, what, raw in ann.sent if what == "event" and b"task.request" in raw]
    assert [one["timeout_secs"] for one in said] == [77, 5]


async def test_a_directory_is_lent_to_paired_daemons_alone() -> None:
    world = World()
    ann, bob, cat = world.add("ann"), world.add("bob"), world.add("cat")
    found = service(ann)
    async with world.running(ann, bob, cat):
        await until(lambda: len(ann.addresses()) == 2)
        for neighbour in ann.federation.neighbours.all():
            if neighbour.node.alias == "bob":
                bob_there = neighbour
        listed = replace(bob_there.node, paired=False)
        ann.federation.neighbours.refresh = list  # type: ignore[method-assign]
        bob_there.node = listed
        assert (await found.find(Find(to="capability:test"), HUMAN)).peer == "cat"
        with pytest.raises(SubletError, match="no paired daemon") as refused:
            await found.find(Find(to=B), HUMAN)
        assert "sublet ask" in refused.value.hint
        assert (await asked(found, to=B, text="it")).result == "worker-1 did it"


async def test_many_agents_are_listed_while_others_have_the_loop_and_policy_is_asked_once_for_each_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    ann, bob = world.add("ann"), world.add("bob")
    found = service(ann)
    asked_for: list[str] = []
    hides = found._gate.hides

    def counted(caller: Subject, action: Action, name: str) -> bool:
        asked_for.append(name)
        return hides(caller, action, name)

    monkeypatch.setattr(found._gate, "hides", counted)
    monkeypatch.setattr("sublet.turns.TURN_SECONDS", 0.0)
    turns = 0
    async with world.running(ann, bob):
        await until(lambda: ann.addresses() == [B])
        for number in range(300):
            address = AgentAddress(f"a{number:03}", node_name("bob.local"))
            ann.federation.table.register(address, "x", [], steady=world.steady, wall=world.wall)
        over = False

        async def count() -> None:
            nonlocal turns
            while not over:
                turns += 1
                await anyio.sleep(0)

        async with anyio.create_task_group() as group:
            group.start_soon(count)
            listed = await found.agents(Nothing(), HUMAN)
            over = True
    assert [one.agent_id for one in listed][:3] == ["worker-1", "a000", "a001"]
    assert len(listed) == 302
    assert turns >= 300
    assert asked_for.count("bob") == 1
