"""Makes the supervisor's parts and runs them: sessions, agents, router, and what is at work."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import structlog

from sublet.daemon.config.config_file import SupervisorConfig
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.storage.journal import Journal
from sublet.daemon.supervising.agents import AgentSet, GateMaker
from sublet.daemon.supervising.runs import Runs
from sublet.daemon.supervising.service import SupervisorParts, SupervisorService
from sublet.daemon.times import rfc3339
from sublet.disk.durable import write_durably
from sublet.policy.engine import Policy
from sublet.policy.guardrail.options import GuardOptions
from sublet.policy.model import Action, Decision, Resource, Subject
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.protocol.documents import Document
from sublet.protocol.errors import SubletError
from sublet.protocol.events import EventKeys, EventKind
from sublet.supervisor.agent import AgentRunContext, Emit
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.agent_questions import AgentQuestions
from sublet.supervisor.dispatch import CallLimits, Dispatcher, ModuleHub, NoModules
from sublet.supervisor.model import Job, Provider, Report
from sublet.supervisor.router.classifier import ChatClassifier
from sublet.supervisor.router.model import RouterConfig
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.sessions.older_map import OLDER_MAP_FILE, read_older_map
from sublet.supervisor.sessions.store import SessionStore
from sublet.supervisor.slots import Slots
from sublet.supervisor.super_agent import AgentProvider, SuperAgent
from sublet.supervisor.supervisor_agent import SupervisorAgent, Surroundings

SESSIONS = "sessions"
TAKEN_OVER = ".older-map-taken-over"
"""Beside the sessions, once an older map was read: it is read once, whatever becomes of it."""

log = structlog.get_logger(__name__)


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
        policy: says who may have which agent.
        gate: asks it, and journals refusals.
        slots: bound what is at work at once.
        agents: those offered now.
        provider: what does the work of one.
        chain_of: the chain of an agent that asks.
        modules: what ``/hub`` reaches.
        tool_gate: makes what stands before an agent's tools.
        questions: takes what agents ask a person.
    """

    config: SupervisorConfig
    state_dir: Path
    config_dir: Path
    scratch_root: Path
    node_id: str
    journal: Journal
    policy: Policy
    gate: Gatekeeper
    slots: Slots
    agents: Callable[[], Sequence[AgentConfig]]
    provider: Callable[[str], Provider]
    chain_of: Callable[[Subject], Chain]
    modules: ModuleHub | None
    tool_gate: GateMaker | None
    capabilities: Callable[[], str]
    questions: AgentQuestions | None


class Supervising:
    """The supervisor's parts. ``serve`` must run for anything to be worked on."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self.emit = journal_emit(around.journal)
        self.store = SessionStore(around.state_dir / SESSIONS, rfc3339)
        self.sessions = SessionControl(self.store, self.emit, rfc3339)
        self.agents = AgentSet(
            around.node_id,
            around.agents,
            around.provider,
            self.sessions,
            lambda find: Dispatcher(around.node_id, find, around.gate.ask, self._limits, around.slots.run),
            around.tool_gate,
            around.questions,
        )
        self.dispatcher = self.agents.dispatcher
        self.supervisor = SupervisorAgent(
            Surroundings(
                agents=around.agents,
                modules=around.modules or NoModules(),
                may=self._may,
                load=lambda agent_id: self.dispatcher.running(agent_id) / (around.slots.capacity + 1),
                config=self._router,
                question_seconds=lambda: around.config.question_seconds,
                now=rfc3339,
                clock=time.time,
                capabilities=around.capabilities,
            ),
            self.dispatcher,
            self.sessions,
            around.gate.ask,
            _classifier(around.config),
        )
        self.runs = Runs(around.scratch_root)
        self.parts = SupervisorParts(
            gate=around.gate,
            sessions=self.sessions,
            supervisor=self.supervisor,
            dispatcher=self.dispatcher,
            agents=self.agents,
            runs=self.runs,
            configs=around.agents,
            lease_seconds=lambda: around.config.lease_seconds,
            chain_of=around.chain_of,
            emit=self.emit,
            clock=time.time,
            guard=lambda: GuardOptions(around.config.guardrail_retries, around.config.guardrail_on_failure),
        )
        self.service = SupervisorService(self.parts)

    async def serve(self) -> None:
        """Work on what is asked until cancelled."""
        await asyncio.to_thread(self.store.sweep)
        await self._take_over()
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
        """Return a super agent in the place of a provider, for what is not asked through a session."""
        subject = Subject("agent", config.id, role=config.role)

        def context(job: Job, report: Report) -> AgentRunContext:
            return AgentRunContext(
                finger_session_id="",
                request_id=job.delegation_id,
                chain=job.chain,
                emit=self.emit,
                job=job,
                report=report,
                subject=subject,
            )

        return AgentProvider(SuperAgent(config, self.dispatcher), context)

    def _limits(self) -> CallLimits:
        return CallLimits(self._around.config.max_depth, self._around.config.lease_seconds)

    def _may(self, caller: Subject, action: Action, agent_id: str) -> Decision:
        return self._around.policy.decide(caller, action, Resource(agent_id, {"declared": False, "depth": 0}))

    def _router(self) -> RouterConfig:
        config = self._around.config
        return RouterConfig(
            default_route=config.default_route or "",
            default_provider=config.default_provider or "",
            min_confidence=config.min_confidence,
            remember=config.remember,
            hub=config.hub,
        )

    async def _take_over(self) -> None:
        """Take over the bindings of an older map, once; where that fails, the start does not."""
        marker = self._around.state_dir / SESSIONS / TAKEN_OVER
        for directory in (self._around.config_dir, self._around.state_dir):
            try:
                if await asyncio.to_thread(marker.exists):
                    return
                older = await asyncio.to_thread(read_older_map, directory / OLDER_MAP_FILE, rfc3339())
                if older is None:
                    continue
                taken = await self.sessions.take_over(older)
                await asyncio.to_thread(_mark, marker, directory / OLDER_MAP_FILE)
                log.info("an older session map is taken over", bindings=taken, skipped=older.skipped)
            except (OSError, SubletError) as error:
                log.error("an older session map is not taken over", reason=str(error))


def journal_emit(journal: Journal) -> Emit:
    """Return what journals the events of runs."""

    async def emit(
        kind: EventKind, keys: EventKeys, data: Mapping[str, JsonValue], keeps: Sequence[Document] = ()
    ) -> int:
        return (await journal.append_event(kind, None, data, keys=keys, keeps=keeps)).seq

    return emit


def _classifier(config: SupervisorConfig) -> ChatClassifier | None:
    chosen = config.classifier
    if chosen is None:
        return None
    key = os.environ.get(chosen.api_key_env, "") if chosen.api_key_env else ""
    return ChatClassifier(chosen.endpoint, chosen.model, key, timeout_seconds=chosen.timeout_seconds)


def _mark(marker: Path, source: Path) -> None:
    marker.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(marker, hashlib.sha256(source.read_bytes()).hexdigest().encode() + b"\n")
