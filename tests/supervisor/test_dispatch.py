"""Calls between agents: refused before anything is started, ended with their lease, journalled in order."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.recorded import Record
from sublet.protocol.chain import Chain, address
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.events import EventKeys, EventKind
from sublet.supervisor.agent import AgentRunContext, UnifiedAgent, UnifiedAgentInput
from sublet.supervisor.agent_config import AgentConfig, load_agents
from sublet.supervisor.dispatch import CallLimits, Dispatcher
from sublet.supervisor.job import Deadline, Job, Outcome, Report
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.slots import Slots
from sublet.supervisor.super_agent import SuperAgent
from sublet.supervisor.worker import WorkerAgent
from support.decisions import a_record
from support.jobs import command
from support.supervising import NODE, Events, context, control
from support.worker import ScriptedAgent, work_for_ever

pytestmark = pytest.mark.anyio
LEASE_SECONDS = 1.0
"""Of a call whose lease ends while it runs: long enough for its agent to begin on a busy machine."""
LIMITS = CallLimits(4, 30)


def team(name: str, plan: dict[str, object]) -> AgentConfig:
    return AgentConfig.model_validate({"id": name, "provider": {"type": "super", **plan}})


class World:
    """Some agents of one daemon, whose work the test plays."""

    def __init__(self, root: Path, limits: CallLimits = LIMITS, **supers: dict[str, object]) -> None:
        self.events = Events()
        self.sessions: SessionControl = control(root, self.events)
        self.root = root
        self.asked: list[tuple[str, Action, str, bool]] = []
        self.denied: set[str] = set()
        self.slots = Slots(lambda: 2)
        self.made: dict[str, ScriptedAgent] = {}
        self.configs = {name: team(name, plan) for name, plan in supers.items()}
        self.dispatcher = Dispatcher(NODE, self.find, self.ask, limits, self.slot)

    @contextlib.contextmanager
    def slot(self, job_id: str) -> Iterator[None]:
        with self.slots.run(job_id):
            yield

    async def ask(
        self,
        caller: Subject,
        action: Action,
        name: str,
        *,
        keys: EventKeys | None = None,
        **attributes: str | int | bool,
    ) -> Record:
        self.asked.append((f"{caller.kind}:{caller.name}", action, name, attributes.get("declared") is True))
        if name in self.denied:
            raise SubletError(LocalCode.POLICY_DENIED, f"{name} is denied")
        return a_record(caller, action, Resource(name, attributes))

    def worker(self, name: str) -> ScriptedAgent:
        return self.made.setdefault(name, ScriptedAgent())

    async def find(self, agent_id: str) -> UnifiedAgent | None:
        if agent_id == "nobody":
            return None
        config = self.configs.get(agent_id)
        if config is not None:
            return SuperAgent(config, self.dispatcher)
        own = command().model_copy(update={"id": agent_id})
        return WorkerAgent(own, lambda: self.worker(agent_id), self.sessions, gate=None, questions=None)

    def context(self, *, chain: Chain | None = None) -> AgentRunContext:
        return context(self.root, self.events, chain=chain)

    async def call(self, agent: str, text: str = "do it", *, chain: Chain | None = None) -> str:
        output = await self.dispatcher.dispatch(agent, UnifiedAgentInput(text), self.context(chain=chain))
        return output.text


def says(text: str) -> Outcome:
    return Outcome("done", text, 0)


def playing(world: World, name: str) -> None:
    async def work(job: Job, report: Report) -> Outcome:
        return says(f"{name} of [{job.prompt}]")

    world.worker(name).work = work


async def test_a_call_is_journalled_and_carries_its_chain(tmp_path: Path) -> None:
    world = World(tmp_path)
    playing(world, "coder")
    assert await world.call("coder") == "coder of [do it]"
    assert world.events.kinds() == ["dispatch_sent", "dispatch_result"]
    sent, result = world.events.told
    assert sent.keys.agent_id == result.keys.agent_id == "coder"
    assert result.keys.causation_id == 1
    assert (sent.data["executionChain"], sent.data["nestingDepth"]) == ([], 0)
    assert str(sent.data["leaseId"]).startswith("lse_")
    assert world.asked == [("human:", Action.AGENT_DISPATCH, "coder", False)]


@pytest.mark.parametrize(
    ("chain", "code"),
    [
        (Chain((address("coder", NODE),)), LocalCode.LOOP_REFUSED),
        (Chain(("x@n", f"CODER@{NODE}", "y@n")), LocalCode.LOOP_REFUSED),
        (Chain(tuple(f"a{number}@n" for number in range(6))), LocalCode.DEPTH_REFUSED),
        (Chain(("x@n",), "lse", 0), LocalCode.LEASE_OVER),
    ],
)
async def test_what_the_chain_refuses_is_not_even_asked_for(tmp_path: Path, chain: Chain, code: LocalCode) -> None:
    world = World(tmp_path)
    with pytest.raises(SubletError) as no:
        await world.call("coder", chain=chain)
    assert no.value.code is code
    assert (world.asked, world.made, world.slots.in_use) == ([], {}, 0)
    [rejected] = world.events.told
    assert (rejected.kind, rejected.data["layer"]) == (EventKind.POLICY_REJECTED, "chain")
    assert all(caller.lower() in str(rejected.data["reason"]).lower() for caller in chain.execution_chain)


async def test_what_policy_denies_is_not_started(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.denied.add("coder")
    with pytest.raises(SubletError) as no:
        await world.call("coder")
    assert no.value.code is LocalCode.POLICY_DENIED
    assert (world.made, world.events.told) == ({}, [])
    with pytest.raises(SubletError) as absent:
        await world.call("nobody")
    assert absent.value.code is LocalCode.NOT_FOUND


async def test_a_lease_ends_the_call_and_what_it_started(tmp_path: Path) -> None:
    world = World(tmp_path, CallLimits(4, LEASE_SECONDS), team={"workers": ["coder"]})
    world.worker("coder").work = work_for_ever
    with pytest.raises(SubletError) as no:
        await world.call("team")
    assert no.value.code is LocalCode.LEASE_OVER
    assert world.worker("coder").ended.is_set()
    assert world.slots.in_use == 0
    assert world.dispatcher.running("coder") == world.dispatcher.running("team") == 0
    assert world.events.of(EventKind.DISPATCH_RESULT)[-1].data["code"] == "LEASE_OVER"


async def test_what_an_agent_calls_late_has_only_what_is_left(tmp_path: Path) -> None:
    world = World(tmp_path)
    moment = anyio.current_time()
    waited = world.context(chain=Chain(("x@n",), "lse", 30))
    # It waited for its turn for 20 of the 30 seconds that its caller has.
    waited = replace(waited, job=replace(waited.job, deadline=Deadline(moment + 10)))
    playing(world, "coder")
    await world.dispatcher.dispatch("coder", UnifiedAgentInput("do it"), waited)
    [sent] = world.events.of(EventKind.DISPATCH_SENT)
    assert 0 < float(str(sent.data["ttl"])) <= 10
    job = world.worker("coder").jobs[0]
    assert job.deadline is not None
    assert job.deadline.at <= moment + 10
    over = replace(waited, job=replace(waited.job, deadline=Deadline(moment - 1)))
    with pytest.raises(SubletError) as no:
        await world.dispatcher.dispatch("coder", UnifiedAgentInput("do it"), over)
    assert no.value.code is LocalCode.LEASE_OVER
    assert len(world.worker("coder").jobs) == 1


async def test_a_team_in_turn_hands_on_what_was_said_and_asks_for_each(tmp_path: Path) -> None:
    world = World(tmp_path, team={"workers": ["coder", {"agent": "reviewer", "task": "Review it."}]})
    for name in ("coder", "reviewer"):
        playing(world, name)
    answer = await world.call("team")
    assert answer.startswith("reviewer of [Review it.\n\ndo it\n\nWhat agent coder has done")
    assert "coder of [do it]" in answer
    assert world.asked == [
        ("human:", Action.AGENT_DISPATCH, "team", False),
        ("agent:team", Action.AGENT_DISPATCH, "coder", True),
        ("agent:team", Action.AGENT_DISPATCH, "reviewer", True),
    ]
    jobs = [world.worker(name).jobs[0] for name in ("coder", "reviewer")]
    assert [job.chain.execution_chain for job in jobs] == [(address("team", NODE),)] * 2
    assert len({job.scratch for job in jobs} | {job.delegation_id for job in jobs}) == 4
    # One request, one slot, however many agents it takes.
    assert world.slots.in_use == 0


async def test_a_team_at_once_and_one_that_fails(tmp_path: Path) -> None:
    for on_failure in ("continue", "stop"):
        world = World(tmp_path, team={"workers": ["slow", "broken"], "mode": "parallel", "on_failure": on_failure})
        slow = world.worker("slow")

        async def fail(job: Job, report: Report, slow: ScriptedAgent = slow) -> Outcome:
            await slow.began.wait()
            return Outcome("failed", "no", 1)

        world.worker("broken").work = fail
        if on_failure == "continue":
            playing(world, "slow")
            assert await world.call("team") == "## slow\n\nslow of [do it]"
        else:
            world.worker("slow").work = work_for_ever
            with pytest.raises(SubletError) as no:
                await world.call("team")
            assert no.value.code is ErrorCode.TASK_FAILED
            assert world.worker("slow").ended.is_set()


async def test_teams_nest_and_a_loop_at_run_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, outer={"workers": ["inner"]}, inner={"workers": ["coder"]})
    playing(world, "coder")
    assert await world.call("outer") == "coder of [do it]"
    assert world.worker("coder").jobs[0].chain.execution_chain == (address("outer", NODE), address("inner", NODE))
    # A reload may have made a loop of what was none.
    world.configs["inner"] = team("inner", {"workers": ["outer"]})
    with pytest.raises(SubletError) as no:
        await world.call("outer")
    assert no.value.code is LocalCode.LOOP_REFUSED
    assert f"outer@{NODE} → inner@{NODE} → outer@{NODE}" in no.value.message


@pytest.mark.parametrize(
    ("agents", "says_"),
    [
        ([{"id": "a", "provider": {"type": "super", "workers": ["a"]}}], "a → a"),
        (
            [
                {"id": "a", "provider": {"type": "super", "workers": ["b"]}},
                {"id": "b", "provider": {"type": "super", "workers": ["c"]}},
                {"id": "c", "provider": {"type": "super", "workers": [{"agent": "a"}]}},
            ],
            "a → b → c → a",
        ),
        ([{"id": "a", "provider": {"type": "super", "workers": ["b"]}}], "none of these agents"),
    ],
)
def test_a_loop_in_the_file_is_no_configuration(tmp_path: Path, agents: list[object], says_: str) -> None:
    file = tmp_path / "agent.json"
    file.write_text(json.dumps({"agents": agents}))
    with pytest.raises(SubletError, match=says_):
        load_agents(file)
