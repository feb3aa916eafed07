"""Makes the supervisor over the agents of a daemon: sessions, router, calls between agents, and what is at work."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from sublet.daemon.config.config_file import SupervisorConfig
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.storage.journal import Journal
from sublet.daemon.supervising.agents import AgentSet, GateMaker
from sublet.daemon.supervising.asking import Asking, AsksAgents
from sublet.daemon.supervising.older_sessions import OlderSessions
from sublet.daemon.supervising.runs import Runs
from sublet.daemon.supervising.service import SupervisorParts, SupervisorService
from sublet.daemon.supervising.super_provider import super_provider
from sublet.daemon.times import rfc3339
from sublet.policy.decision import Action, Decision, Resource, Subject
from sublet.policy.guardrail.options import GuardOptions
from sublet.protocol.chain import Chain
from sublet.supervisor.agent import Emit
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.agent_questions import AgentQuestions
from sublet.supervisor.dispatch import CallLimits, Dispatcher, ModuleHub, NoModules
from sublet.supervisor.job import Provider
from sublet.supervisor.router.classifier import ChatClassifier
from sublet.supervisor.router.route import RouterConfig
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.sessions.store import SessionStore
from sublet.supervisor.slots import Slots
from sublet.supervisor.supervisor_agent import SupervisorAgent, Surroundings

SESSIONS = "sessions"
"""Below the state directory."""


@dataclass(frozen=True, slots=True)
class Around:
    """What the supervisor is given of the rest of the daemon.

    Args:
        config: ``supervisor`` of ``config.json``.
        state_dir: below which sessions are kept.
        config_dir: where an older session map may lie as well.
        scratch_root: below which work has its directories.
        node_id: of this daemon.
        journal: is told what happens.
        gate: says who may have which agent, and journals refusals.
        slots: bound what is at work at once.
        agents: those offered now.
        provider: what does the work of one.
        chain_of: the chain of an agent that asks.
        hub: what ``/hub`` reaches; None for nothing.
        tool_gate: makes what stands before an agent's tools; None where no tool is governed.
        capabilities: returns the digest of the registry of capabilities.
        questions: takes what agents ask a person; None where nobody is asked.
    """

    config: SupervisorConfig
    state_dir: Path
    config_dir: Path
    scratch_root: Path
    node_id: str
    journal: Journal
    gate: Gatekeeper
    slots: Slots
    agents: Callable[[], Sequence[AgentConfig]]
    provider: Callable[[str], Provider]
    chain_of: Callable[[Subject], Chain]
    hub: ModuleHub | None
    tool_gate: GateMaker | None
    capabilities: Callable[[], str]
    questions: AgentQuestions | None


@dataclass(frozen=True, slots=True)
class Supervising:
    """The supervisor's parts. ``serve`` must run for anything to be worked on.

    Args:
        store: of sessions, on the disk.
        older: takes over sessions of an older map.
        sessions: those that there are.
        supervisor: sees to requests.
        agents: those that can be asked.
        dispatcher: has agents work, and lets them call each other.
        runs: the work under way.
        asking: brings requests to the supervisor.
        emit: is told what happens.
        service: the operations on sessions and agents.
    """

    store: SessionStore
    older: OlderSessions
    sessions: SessionControl
    supervisor: SupervisorAgent
    agents: AgentSet
    dispatcher: Dispatcher
    runs: Runs
    asking: AsksAgents
    emit: Emit
    service: SupervisorService

    async def serve(self) -> None:
        """Work on what is asked until cancelled."""
        await asyncio.to_thread(self.store.sweep)
        await self.older.take_over()
        await self.runs.serve()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Shut the agents down when the body, which has ``serve`` run, is over."""
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self.agents.aclose()
                await self.supervisor.shutdown()

    def super_agent(self, config: AgentConfig) -> Provider:
        """Return what does the work of a super agent that is asked through no session."""
        return super_provider(config, self.dispatcher, self.emit)


def make_supervising(around: Around) -> Supervising:
    """Make the supervisor's parts of what surrounds it; nothing runs yet."""
    config, gate, node_id, tell = around.config, around.gate, around.node_id, around.journal.events.tell
    store = SessionStore(around.state_dir / SESSIONS, rfc3339)
    sessions = SessionControl(store, tell, rfc3339)
    limits = CallLimits(config.max_depth, config.lease_seconds)
    agents = AgentSet(
        node_id,
        around.agents,
        around.provider,
        sessions,
        lambda find: Dispatcher(node_id, find, gate.ask, limits, around.slots.run),
        around.tool_gate,
        around.questions,
    )
    dispatcher = agents.dispatcher

    def may(caller: Subject, action: Action, agent_id: str) -> Decision:
        return gate.foresee(caller, action, Resource(agent_id, {"declared": False, "depth": 0})).decision

    supervisor = SupervisorAgent(
        Surroundings(
            agents=around.agents,
            hub=around.hub or NoModules(),
            may=may,
            load=lambda agent_id: dispatcher.running(agent_id) / (around.slots.capacity + 1),
            config=_router(config),
            question_seconds=config.question_seconds,
            now=rfc3339,
            clock=time.time,
            capabilities=around.capabilities,
        ),
        dispatcher,
        sessions,
        gate.ask,
        _classifier(config),
    )
    runs = Runs(around.scratch_root)
    asking = Asking(supervisor, sessions, dispatcher, runs, config.lease_seconds, tell)
    parts = SupervisorParts(
        gate=gate,
        asking=asking,
        sessions=sessions,
        supervisor=supervisor,
        dispatcher=dispatcher,
        agents=agents,
        configs=around.agents,
        chain_of=around.chain_of,
        clock=time.time,
        guard=GuardOptions(config.guardrail_retries, config.guardrail_on_failure),
    )
    older = OlderSessions((around.config_dir, around.state_dir), around.state_dir / SESSIONS, sessions)
    return Supervising(
        store=store,
        older=older,
        sessions=sessions,
        supervisor=supervisor,
        agents=agents,
        dispatcher=dispatcher,
        runs=runs,
        asking=asking,
        emit=tell,
        service=SupervisorService(parts),
    )


def _router(config: SupervisorConfig) -> RouterConfig:
    return RouterConfig(
        default_route=config.default_route or "",
        default_provider=config.default_provider or "",
        min_confidence=config.min_confidence,
        remember=config.remember,
        hub=config.hub,
    )


def _classifier(config: SupervisorConfig) -> ChatClassifier | None:
    chosen = config.classifier
    if chosen is None:
        return None
    key = os.environ.get(chosen.api_key_env, "") if chosen.api_key_env else ""
    return ChatClassifier(chosen.endpoint, chosen.model, key, timeout_seconds=chosen.timeout_seconds)
