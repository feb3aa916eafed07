"""Serves the operations on the supervisor, its sessions and its agents (SuperAgent 4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from pydantic import JsonValue

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.sessions import (
    ASK,
    CHANGE_SESSION,
    CREATE_SESSION,
    DELETE_SESSION,
    GET_SESSION,
    LIST_AGENTS,
    LIST_SESSIONS,
    AskAnswer,
    AskBegun,
    AskOutput,
    AskRequest,
    BindingView,
    ListSessions,
    LocalAgents,
    LocalAgentView,
    MessageView,
    NewSession,
    OneSession,
    RouteView,
    SessionChange,
    SessionDetail,
    SessionView,
    ShowSession,
)
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.daemon.supervising.agents import AgentSet
from sublet.daemon.supervising.asking import OWNER, AdmittedRequest, AsksAgents
from sublet.policy.decision import Subject
from sublet.policy.guardrail.mask import Mask
from sublet.policy.guardrail.options import GuardOptions
from sublet.policy.request_rules import narrowing
from sublet.protocol.chain import Chain
from sublet.supervisor.agent import AgentHealth
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.dispatch import Dispatcher
from sublet.supervisor.questions import pending
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.sessions.session_parts import MainSession
from sublet.supervisor.supervisor_agent import AGENT, ANSWER, SupervisorAgent

MAX_SESSIONS_OF_AGENT = 200
"""Sessions that one agent has begun; the one that was used last is the last to go."""


@dataclass(frozen=True, slots=True)
class SupervisorParts:
    """What the service is made of.

    Args:
        gate: asks policy.
        asking: has the supervisor see to requests.
        sessions: those that there are.
        supervisor: knows whom a caller may ask.
        dispatcher: knows how much each agent has at work.
        agents: those that can be asked.
        configs: those offered now.
        chain_of: the chain of an agent that asks.
        clock: Unix seconds.
        guard: how answers are guarded where the request says nothing else.
    """

    gate: Gatekeeper
    asking: AsksAgents
    sessions: SessionControl
    supervisor: SupervisorAgent
    dispatcher: Dispatcher
    agents: AgentSet
    configs: Callable[[], Sequence[AgentConfig]]
    chain_of: Callable[[Subject], Chain]
    clock: Callable[[], float]
    guard: GuardOptions


class SupervisorService:
    """Serves the operations of ``api.sessions``."""

    def __init__(self, parts: SupervisorParts) -> None:
        self._parts = parts
        self._gate = parts.gate

    @serves(ASK)
    async def ask(self, request: AskRequest, caller: Subject) -> AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]:
        metadata: dict[str, JsonValue] = {ANSWER: request.answer}
        if request.agent is not None:
            metadata[AGENT] = request.agent
        chain = self._parts.chain_of(caller)
        owner = OWNER if caller.kind == "human" else f"{caller.kind}:{caller.name}"
        schema, guard = request.answer_schema, self._guard(request)
        if schema is not None:
            await asyncio.to_thread(_check_schema, schema)
        if request.session_id is None:
            await self._parts.asking.make_room(owner, MAX_SESSIONS_OF_AGENT)
        asked = AdmittedRequest(
            request.text, caller, owner, chain, metadata, schema, guard, narrowing(request.deny, request.only)
        )
        async with aclosing(self._parts.asking.ask(asked, request.session_id)) as updates:
            async for update in updates:
                yield update

    def _guard(self, request: AskRequest) -> GuardOptions:
        """Return how the answer is guarded: as configured, where the request says nothing else."""
        usual = self._parts.guard
        return GuardOptions(
            retries=usual.retries if request.retries is None else request.retries,
            on_failure=request.on_failure or usual.on_failure,
            mask=Mask(tuple(request.mask)) if request.mask is not None else None,
        )

    @serves(LIST_AGENTS)
    async def list_agents(self, request: Nothing, caller: Subject) -> LocalAgents:
        denied = {one.agent_id: one.denied for one in self._parts.supervisor.candidates(caller)}
        return LocalAgents(
            agents=[await self._agent_view(one, denied.get(one.id, "")) for one in self._parts.configs()]
        )

    @serves(LIST_SESSIONS)
    async def list_sessions(self, request: ListSessions, caller: Subject) -> list[SessionView]:
        return [self._view(session) for session in await self._parts.sessions.list(request.limit)]

    @serves(GET_SESSION)
    async def get_session(self, request: ShowSession, caller: Subject) -> SessionDetail:
        session = await self._parts.sessions.get(request.session_id)
        bindings = await self._parts.sessions.bindings(request.session_id)
        said = await self._parts.sessions.messages(request.session_id, request.messages)
        return SessionDetail(
            **self._view(session).model_dump(),
            bindings=[BindingView.model_validate(one.model_dump()) for one in bindings],
            messages=[MessageView.model_validate(one.model_dump()) for one in said.messages],
            unreadable_messages=said.unreadable,
        )

    @serves(CREATE_SESSION)
    async def create_session(self, request: NewSession, caller: Subject) -> SessionView:
        return self._view(await self._parts.sessions.create(title=request.title))

    @serves(CHANGE_SESSION)
    async def change_session(self, request: SessionChange, caller: Subject) -> SessionView:
        return self._view(await self._parts.sessions.set_status(request.session_id, request.status))

    @serves(DELETE_SESSION)
    async def delete_session(self, request: OneSession, caller: Subject) -> SessionView:
        return self._view(await self._parts.sessions.delete(request.session_id))

    def _view(self, session: MainSession) -> SessionView:
        waiting = pending(session, self._parts.clock())
        last = session.routing.last_route if session.routing else None
        return SessionView(
            finger_session_id=session.finger_session_id,
            title=session.title,
            status=session.status,
            owner=session.owner,
            created_at=session.created_at,
            updated_at=session.updated_at,
            last_route=RouteView.model_validate(last.model_dump()) if last else None,
            question=waiting.question if waiting else None,
            options=list(waiting.options) if waiting else [],
            busy=self._parts.sessions.busy(session.finger_session_id),
        )

    async def _agent_view(self, config: AgentConfig, denied: str) -> LocalAgentView:
        agent = await self._parts.agents.find(config.id)
        gone = AgentHealth(ok=False, detail="it is not offered any more")
        health = await agent.health() if agent is not None else gone
        return LocalAgentView(
            agent_id=config.id,
            role=config.role,
            provider=agent.provider if agent is not None else config.provider.type,
            description=config.description,
            skills=[skill.name for skill in config.skills],
            cost=config.routing.cost,
            trust=config.routing.trust,
            running=self._parts.dispatcher.running(config.id),
            ok=health.ok,
            detail=health.detail,
            denied=denied,
        )


def _check_schema(document: Mapping[str, JsonValue]) -> None:
    """Refuse a schema that can't be used before anything is done for the request."""
    from sublet.policy.guardrail.schema import CheckedSchema  # loaded by whoever uses one

    CheckedSchema(document)
