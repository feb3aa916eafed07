"""Asking the supervisor: routed, remembered, answered by a person where it is not sure, and by policy all the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from sublet.app.supervising import Around, make_supervising
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.sessions import (
    AskAnswer,
    AskRequest,
    ListSessions,
    NewSession,
    OneSession,
    SessionChange,
    ShowSession,
)
from sublet.daemon.config.config_file import SupervisorConfig
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.modules.gateway_input import GatewayInputs
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.daemon.supervising.older_sessions import TAKEN_OVER
from sublet.daemon.supervising.prune_store import KeptSessions
from sublet.policy.config import PolicyConfig, parse
from sublet.policy.decision import Subject
from sublet.policy.engine import Policy
from sublet.policy.guardrail.options import GuardOptions
from sublet.policy.lending import Protected
from sublet.protocol.chain import Chain
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventKind
from sublet.protocol.gateway import GatewayInput
from sublet.supervisor.agent import AgentRunContext
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.dispatch import CallLimits
from sublet.supervisor.gateways.module_file import GatewayModule
from sublet.supervisor.job import Job, Outcome, Provider, Report
from sublet.supervisor.provider_config import AcpConfig
from sublet.supervisor.router.classifier import ChatClassifier
from sublet.supervisor.router.route import Route, RouterConfig, RouteRequest
from sublet.supervisor.router.rules import decide
from sublet.supervisor.slots import Slots
from support.decisions import KeptDecisions
from support.jobs import command
from support.supervising import NODE

pytestmark = pytest.mark.anyio
ME = Subject("human")


def agent(name: str, *tags: str) -> AgentConfig:
    skills = [{"id": name, "name": name, "description": "d", "tags": list(tags)}] if tags else []
    return command(skills=skills).model_copy(update={"id": name})


class Jira:
    """A module that writes down what it gets."""

    def __init__(self) -> None:
        self.got: list[str] = []

    def names(self) -> list[str]:
        return ["jira"]

    async def send(self, module: str, text: str, ctx: AgentRunContext) -> str:
        self.got.append(text)
        return f"ticket for {text}"


class Echo:
    """A provider with sessions of its own, that says what it was asked."""

    async def run(self, job: Job, report: Report) -> Outcome:
        return Outcome("done", f"did [{job.prompt}]", 0, provider_session_id=job.provider_session_id or "p-1")


class Side:
    """One daemon's supervisor, on a store of its own."""

    def __init__(self, root: Path, store: Store, policy: PolicyConfig, **config: Any) -> None:
        self.journal = Journal(store)
        self.agents = [agent("coder", "python", "fast"), agent("writer", "docs"), agent("other", "docs")]
        self.jira = Jira()
        self.provider: Provider = Echo()
        decides = Policy(Protected(root / "home"), policy)
        self.supervising = make_supervising(
            Around(
                config=SupervisorConfig(**config),
                state_dir=root,
                config_dir=root,
                scratch_root=root / "scratch",
                node_id=NODE,
                journal=self.journal,
                gate=Gatekeeper(decides, self.journal, list, KeptDecisions()),
                slots=Slots(lambda: 3),
                agents=lambda: self.agents,
                provider=lambda _: self.provider,
                hub=self.jira,
                chain_of=lambda _: Chain(),
                tool_gate=None,
                capabilities=lambda: "",
                questions=None,
            )
        )
        self.service = self.supervising.service

    async def ask(self, text: str, session: str | None = None, caller: Subject = ME, **more: Any) -> AskAnswer:
        request = AskRequest(text=text, session_id=session, **more)
        updates = [update async for update in self.service.ask(request, caller)]
        assert isinstance(updates[-1], AskAnswer)
        return updates[-1]

    async def events(self, kind: EventKind) -> list[Event]:
        page = await self.journal.events.events_after(0, limit=500)
        return [event for event in page.events if event.kind is kind]


@pytest.fixture
def policy() -> PolicyConfig:
    return PolicyConfig()


@pytest.fixture
async def side(tmp_path: Path, policy: PolicyConfig) -> AsyncIterator[Side]:
    async with opened_side(tmp_path, policy) as made:
        yield made


@asynccontextmanager
async def opened_side(tmp_path: Path, policy: PolicyConfig, **config: Any) -> AsyncIterator[Side]:
    store = await Store.open(tmp_path / "sublet.db")
    side = Side(tmp_path, store, policy, **config)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(side.supervising.serve)
            with anyio.fail_after(10):
                while not side.supervising.runs.serving:
                    await anyio.sleep(0)
            yield side
            group.cancel_scope.cancel()
    finally:
        await store.close()


def data(event: Event) -> dict[str, Any]:
    return dict(event.data)


async def test_a_route_is_journalled_remembered_and_decided_alike_when_it_is_replayed(side: Side) -> None:
    first = await side.ask("fix the python")
    again = await side.ask("and go on", first.finger_session_id)
    assert (first.target, again.target) == ("coder", "coder")
    assert again.result == "did [and go on]"
    assert "before this one" in again.reason
    session = await side.supervising.sessions.get(first.finger_session_id)
    assert session.routing is not None
    assert session.routing.last_route is not None
    assert session.routing.last_route.target == "coder"
    assert session.routing.capability_snapshot_version
    routes = await side.events(EventKind.ROUTE_DECIDED)
    assert len(routes) == 2
    for event in routes:
        told = data(event)
        request = RouteRequest.model_validate(told["request"])
        kept = {name: told[name] for name in ("decision", "target", "confidence", "reason", "rule", "options")}
        replayed = decide(request)
        assert Route.model_validate({**kept, "message": replayed.message}) == replayed
    for kind in (EventKind.SESSION_CREATED, EventKind.DISPATCH_SENT, EventKind.DISPATCH_RESULT):
        assert await side.events(kind)
    assert [e.kind for e in (await side.journal.events.events_after(0, limit=500)).events][:4] == [
        EventKind.SESSION_CREATED,
        EventKind.ROUTE_DECIDED,
        EventKind.DISPATCH_SENT,
        EventKind.SESSION_BOUND,
    ]


async def test_a_person_answers_and_the_request_goes_on(side: Side) -> None:
    asked = await side.ask("write docs")
    assert (asked.route_decision, asked.result, asked.options) == ("ask_human", None, ["writer", "other"])
    [event] = await side.events(EventKind.ASK_HUMAN)
    assert data(event)["options"] == ["writer", "other"]
    shown = await side.service.get_session(ShowSession(session_id=asked.finger_session_id), ME)
    assert shown.question == asked.question
    done = await side.ask("2", asked.finger_session_id, answer=True)
    assert (done.target, done.result) == ("other", "did [write docs]")
    assert (await side.service.get_session(ShowSession(session_id=asked.finger_session_id), ME)).question is None
    with pytest.raises(SubletError) as no:
        await side.ask("2", asked.finger_session_id, answer=True)
    assert no.value.code is LocalCode.CONFLICT


async def test_what_is_meant_may_be_said_in_words_but_not_for_ever(side: Side) -> None:
    asked = await side.ask("write docs")
    done = await side.ask("in fast python", asked.finger_session_id, answer=True)
    assert (done.route_decision, done.target) == ("dispatch_agent", "coder")
    assert done.result == "did [write docs\n\nin fast python]"
    asked = await side.ask("write docs")
    for _ in range(2):
        asked = await side.ask("more docs", asked.finger_session_id, answer=True)
        assert asked.route_decision == "ask_human"
    assert (await side.ask("docs", asked.finger_session_id, answer=True)).route_decision == "reject"


async def test_hub_goes_to_the_module_and_an_unknown_one_nowhere(side: Side) -> None:
    done = await side.ask("/hub jira a bug")
    assert (done.route_decision, done.target, done.result) == ("dispatch_module", "jira", "ticket for a bug")
    assert (await side.ask("/hub slack hi")).route_decision == "reject"
    assert (await side.ask("please /hub jira no")).route_decision == "dispatch_agent"
    assert side.jira.got == ["a bug"]


DENIES = parse(
    {
        "version": 1,
        "global": [
            {"id": "no-jira", "effect": "deny", "action": "module.dispatch", "resource": "jira", "reason": "not today"},
            {"id": "no-coder", "effect": "deny", "action": "agent.dispatch", "resource": "coder", "reason": "not him"},
        ],
    }
)


@pytest.mark.parametrize("policy", [DENIES])
async def test_policy_stands_before_modules_and_agents(side: Side) -> None:
    with pytest.raises(SubletError, match="not today") as no:
        await side.ask("/hub jira a bug")
    assert (no.value.code, side.jira.got) == (LocalCode.POLICY_DENIED, [])
    rejected = await side.ask("@coder do it")
    assert (rejected.route_decision, rejected.result) == ("reject", None)
    assert "not him" in rejected.reason
    assert (await side.ask("fix the python")).target != "coder"
    assert [one.denied for one in (await side.service.list_agents(Nothing(), ME)).agents] == ["not him", "", ""]


@pytest.mark.parametrize("kind", ["mcp", "peer", "a2a", "agent"])
async def test_nobody_but_a_person_asks_or_manages_sessions(side: Side, kind: Any) -> None:
    session = await side.service.create_session(NewSession(title="mine"), ME)
    caller, one = Subject(kind, "x"), session.finger_session_id
    change = SessionChange(session_id=one, status="paused")
    for attempt in (
        side.ask("x", caller=caller),
        side.service.list_agents(Nothing(), caller),
        side.service.list_sessions(ListSessions(), caller),
        side.service.get_session(ShowSession(session_id=one), caller),
        side.service.create_session(NewSession(title="theirs"), caller),
        side.service.change_session(change, caller),
        side.service.delete_session(OneSession(session_id=one), caller),
    ):
        with pytest.raises(SubletError) as no:
            await attempt
        assert no.value.code is LocalCode.POLICY_DENIED
    assert [s.status for s in await side.service.list_sessions(ListSessions(), ME)] == ["active"]


async def test_a_closed_session_refuses_and_a_deleted_one_is_gone(side: Side) -> None:
    one = (await side.ask("fix python")).finger_session_id
    await side.service.change_session(SessionChange(session_id=one, status="completed"), ME)
    with pytest.raises(SubletError) as closed:
        await side.ask("more", one)
    assert closed.value.code is LocalCode.SESSION_CLOSED
    store = KeptSessions(side.supervising.sessions, side.supervising.store)
    [candidate] = await store.candidates()
    assert (candidate.id, candidate.pending) == (one, False)
    assert candidate.bytes > 0
    assert await store.remove([candidate]) == [candidate]
    with pytest.raises(SubletError) as gone:
        await side.ask("more", one)
    assert gone.value.code is LocalCode.NOT_FOUND


async def test_an_older_map_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "iflow-session-map.json"
    file.write_text('{"f-1": {"iflowSessionId": "i-1"}}')
    for _ in range(2):
        store = await Store.open(tmp_path / "sublet.db")
        side = Side(tmp_path, store, PolicyConfig())
        async with anyio.create_task_group() as group:
            group.start_soon(side.supervising.serve)
            with anyio.fail_after(10):
                while not side.supervising.runs.serving:
                    await anyio.sleep(0)
            group.cancel_scope.cancel()
        assert [one.finger_session_id for one in await side.supervising.sessions.list()] == ["f-1"]
        file.write_text('{"f-2": {"iflowSessionId": "i-2"}}')
        await store.close()
    assert (tmp_path / "sessions" / TAKEN_OVER).exists()


HELD: dict[str, Any] = {"id": "keep-held", "effect": "deny", "hide": True, "resource": "writer"}


@pytest.mark.parametrize("kind", ["human", "a2a"])
async def test_a_hidden_agent_is_not_there_for_the_router_and_its_answers(tmp_path: Path, kind: Any) -> None:
    rule = {**HELD, "action": ["agent.dispatch", "agent.message"]}
    async with opened_side(tmp_path, parse({"version": 1, "global": [rule]})) as side:
        caller = Subject(kind, "" if kind == "human" else "token")
        for text in ("/agents", "@writer hello", "@nobody hello", "write docs"):
            facts = side.supervising.supervisor.candidates(caller)
            assert [one.agent_id for one in facts] == ["coder", "other"]
            route = decide(RouteRequest(text=text, candidates=facts))
            assert "keep-held" not in route.model_dump_json()
            told = route.model_dump_json().replace("@writer hello", "")
            assert "writer" not in told or "there is no agent 'writer' here; there are: coder, other" in told
        if caller.kind == "human":
            listed = await side.service.list_agents(Nothing(), caller)
            assert [one.agent_id for one in listed.agents] == ["coder", "other"]


@pytest.mark.parametrize("text", ["/hub jira a bug", "/agents", "/help"])
async def test_what_no_agent_answers_is_held_to_no_schema(side: Side, text: str) -> None:
    with pytest.raises(SubletError, match="can't be held to a schema") as refused:
        await side.ask(text, answer_schema={"type": "object"})
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
    assert side.jira.got == []


async def test_a_hidden_module_is_not_there(tmp_path: Path) -> None:
    rule = {**HELD, "action": "module.dispatch", "resource": "jira"}
    async with opened_side(tmp_path, parse({"version": 1, "global": [rule]})) as side:
        hidden = await side.ask("/hub jira a bug")
        absent = await side.ask("/hub nothing a bug")
        assert hidden.reason.replace("jira", "nothing") == absent.reason
        assert side.jira.got == []


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_gateway_reaches_a_module_where_a_rule_says_so(tmp_path: Path, allowed: bool) -> None:
    """D27: ``/hub`` from a gateway."""
    rule = {
        "id": "chat-to-jira", "effect": "allow" if allowed else "deny", "action": "module.dispatch", "resource": "jira",
        "subject": {"kind": "a2a", "name": "gateway:chat"},
    }  # fmt: skip
    async with opened_side(tmp_path, parse({"version": 1, "global": [rule]})) as side:
        gate = side.supervising.service._gate
        inputs = GatewayInputs(side.supervising.asking, gate)
        module = cast("Any", SimpleNamespace(id="chat", default_target=""))
        given = GatewayInput(request_id="r1", message="/hub jira a bug")
        if allowed:
            assert await inputs.handle(module, given) == "ticket for a bug"
            assert side.jira.got == ["a bug"]
        else:
            with pytest.raises(SubletError) as refused:
                await inputs.handle(module, given)
            assert refused.value.code is LocalCode.POLICY_DENIED
        other = cast("Any", SimpleNamespace(id="mail", default_target=""))
        with pytest.raises(SubletError) as refused:
            await inputs.handle(other, given)
        assert refused.value.code is LocalCode.POLICY_DENIED
        assert len(side.jira.got) == int(allowed)


async def test_what_is_hidden_is_absent_in_the_same_words(tmp_path: Path) -> None:
    rule = {**HELD, "action": "session.read", "resource": "ses_" + "a" * 26}
    async with opened_side(tmp_path, parse({"version": 1, "global": [rule]})) as side:
        said = []
        for session in ("ses_" + "a" * 26, "ses_" + "b" * 26):
            with pytest.raises(SubletError) as absent:
                await side.service.get_session(ShowSession(session_id=session), ME)
            said.append((absent.value.code, absent.value.message.replace(session, "X"), absent.value.hint))
        assert said[0] == said[1]


async def test_what_config_json_says_of_the_supervisor_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUTER_KEY", "k3y")
    told: dict[str, Any] = {
        "default_route": "writer",
        "default_provider": "acp",
        "min_confidence": 0.9,
        "remember": False,
        "hub": False,
        "max_depth": 2,
        "lease_seconds": 7.0,
        "question_seconds": 8.0,
        "guardrail_retries": 0,
        "guardrail_on_failure": "ask_human",
        "classifier": {
            "endpoint": "https://models.example/v1",
            "model": "small",
            "api_key_env": "ROUTER_KEY",
            "timeout_seconds": 3.0,
        },
    }
    async with opened_side(tmp_path, PolicyConfig(), **told) as side:
        supervising = side.supervising
        surroundings = supervising.supervisor._around
        assert surroundings.config == RouterConfig(
            default_route="writer", default_provider="acp", min_confidence=0.9, remember=False, hub=False
        )
        assert surroundings.question_seconds == 8.0
        assert supervising.dispatcher._limits == CallLimits(2, 7.0)
        assert cast("Any", supervising.asking)._lease_seconds == 7.0
        assert supervising.service._parts.guard == GuardOptions(0, "ask_human")
        classifier = supervising.supervisor._classifier
        assert isinstance(classifier, ChatClassifier)
        assert (classifier._url, classifier._model) == ("https://models.example/v1/chat/completions", "small")
        assert (classifier._key, classifier._timeout) == ("k3y", 3.0)


async def test_an_input_of_a_gateway_goes_where_it_says_and_on_with_its_conversation(side: Side) -> None:
    inputs = GatewayInputs(side.supervising.asking, side.supervising.service._gate)
    given_module = {"id": "chat", "name": "c", "version": "1", "description": "d", "direction": "input"}
    module = GatewayModule.model_validate({**given_module, "protocol": "http", "defaultTarget": "writer"})

    for number, given in enumerate(({"session": "s"}, {"session": "s"}, {"sender": "ann"}, {"sender": "ann"})):
        await inputs.handle(module, GatewayInput.model_validate({"request_id": f"r{number}", "message": "hi", **given}))
    await inputs.handle(module, GatewayInput(request_id="r5", message="hi", target="coder"))
    contexts = [one.metadata["contextId"] for one in await side.supervising.sessions.list()]
    assert sorted(map(str, contexts)) == ["r5", "s", "sender:ann"]
    to = [event.keys.agent_id for event in await side.events(EventKind.DISPATCH_RESULT)]
    assert to == ["writer", "writer", "writer", "writer", "coder"]


class Answers:
    """A provider that answers with the same JSON each time, and keeps what it was asked."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    async def run(self, job: Job, report: Report) -> Outcome:
        self.jobs.append(job)
        return Outcome("done", '{"verdict": "good", "why": "it runs"}', 0)


async def test_a_request_is_answered_by_whom_and_as_it_says(side: Side) -> None:
    provider = side.provider = Answers()
    side.agents[1] = side.agents[1].model_copy(update={"provider": AcpConfig(type="acp", argv=("x",))})
    schema = {"type": "object", "properties": {"verdict": {"enum": ["good", "bad"]}}, "required": ["verdict"]}
    answer = await side.ask("judge", agent="writer", answer_schema=schema, mask=["/verdict"])
    assert answer.agent_id == "writer"
    assert answer.structured == {"verdict": "good"}
    await side.ask("judge", deny=["shell.exec"])
    await side.ask("judge", only=["file.*"])
    assert [(one.narrowing.deny, one.narrowing.only) for one in provider.jobs[1:]] == [
        (("shell.exec",), ()),
        ((), ("file.*",)),
    ]


async def test_an_answer_that_does_not_fit_is_asked_for_and_handed_on_as_the_request_says(side: Side) -> None:
    provider = side.provider = Answers()
    side.agents[1] = side.agents[1].model_copy(update={"provider": AcpConfig(type="acp", argv=("x",))})
    schema = {"type": "object", "required": ["missing"]}
    asked = await side.ask("judge", agent="writer", answer_schema=schema, retries=1, on_failure="ask_human")
    assert asked.question
    assert len(provider.jobs) == 2


async def test_as_many_sessions_are_listed_as_are_asked_for(side: Side) -> None:
    for title in ("first", "second"):
        await side.service.create_session(NewSession(title=title), ME)
    assert len(await side.service.list_sessions(ListSessions(limit=1), ME)) == 1
    assert len(await side.service.list_sessions(ListSessions(), ME)) == 2
