"""Serves the operations on the supervisor, its sessions and its agents (SuperAgent 4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

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
from sublet.daemon.supervising.runs import Runs
from sublet.policy.guardrail.mask import Mask
from sublet.policy.guardrail.options import GuardOptions
from sublet.policy.model import Subject
from sublet.policy.request_rules import NOT_NARROWED, Narrowing, narrowing
from sublet.protocol.chain import Chain
from sublet.protocol.errors import SubletError
from sublet.protocol.events import EventKeys
from sublet.protocol.ids import new_request_id, new_session_id
from sublet.supervisor.agent import AgentHealth, AgentRunContext, Emit, UnifiedAgentInput, UnifiedAgentOutput
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.dispatch import Dispatcher
from sublet.supervisor.model import Job, Output, Report
from sublet.supervisor.questions import pending
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.sessions.model import MainSession
from sublet.supervisor.supervisor_agent import AGENT, ANSWER, SupervisorAgent

MAX_TITLE_CHARS = 80
MAX_SESSIONS_OF_AGENT = 200
"""Sessions that one agent has begun; the one that was used last is the last to go."""
OWNER = "human"
"""Who a session of this machine's person belongs to."""


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A request as it was admitted.

    Args:
        text: what is asked.
        subject: who asks, for policy.
        owner: whose session it may go on with.
        chain: who called until here, where another agent did.
        metadata: how the supervisor is to take it.
        schema: JSON Schema of the answer.
        guard: how that is seen to.
        narrowing: what is left of what the agents may call.
    """

    text: str
    subject: Subject
    owner: str = OWNER
    chain: Chain = field(default_factory=Chain)
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    schema: Mapping[str, JsonValue] | None = None
    guard: GuardOptions = field(default_factory=GuardOptions)
    narrowing: Narrowing = NOT_NARROWED


@dataclass(frozen=True, slots=True)
class SupervisorParts:
    """What the service is made of; the composition root makes it once."""

    gate: Gatekeeper
    sessions: SessionControl
    supervisor: SupervisorAgent
    dispatcher: Dispatcher
    agents: AgentSet
    runs: Runs
    configs: Callable[[], Sequence[AgentConfig]]
    lease_seconds: float
    chain_of: Callable[[Subject], Chain]
    emit: Emit
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
            await self._parts.sessions.make_room(owner, MAX_SESSIONS_OF_AGENT)
        asked = AdmittedRequest(
            request.text, caller, owner, chain, metadata, schema, guard, narrowing(request.deny, request.only)
        )
        async with aclosing(run_asked(self._parts, asked, request.session_id)) as updates:
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


async def run_asked(
    parts: SupervisorParts,
    asked: AdmittedRequest,
    session_id: str | None,
    metadata: Mapping[str, JsonValue] | None = None,
) -> AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]:
    """Have the supervisor see to a request that policy has admitted: as ``ASK``.

    Args:
        parts: of the service.
        asked: the request.
        session_id: the session to go on with; one that is not there is begun where ``metadata`` is given.
        metadata: of a session that is begun under that id.

    Raises:
        SubletError: ``NOT_FOUND``, ``SESSION_CLOSED``, ``UNAVAILABLE``, or what the work fails with.
    """
    parts.dispatcher.check(None, asked.chain)
    keys = EventKeys(request_id=new_request_id())
    request_id = keys.request_id or ""
    if session_id is not None and metadata is None:
        await parts.sessions.for_input(session_id, asked.owner)
    one = session_id or new_session_id()
    yield AskBegun(finger_session_id=one, request_id=request_id)

    async def work(job: Job, report: Report) -> UnifiedAgentOutput:
        async with parts.sessions.turn(one):
            if session_id is None or metadata is not None:
                await _begun(parts, one, asked, keys, metadata)
            # Again, since it may have been paused while this request waited for its turn.
            await parts.sessions.for_input(one, asked.owner)
            ctx = AgentRunContext(
                finger_session_id=one,
                request_id=request_id,
                chain=asked.chain,
                emit=parts.emit,
                job=replace(job, narrowing=asked.narrowing),
                report=report,
                subject=asked.subject,
            )
            return await parts.supervisor.handle(
                UnifiedAgentInput(asked.text, asked.schema, asked.guard, asked.metadata), ctx
            )

    told = parts.runs.run(asked.text, asked.chain, parts.lease_seconds, work)
    async with aclosing(told) as pieces:
        async for piece in pieces:
            if isinstance(piece, Output):
                yield AskOutput(stream=piece.stream, text=piece.text, dropped_chars=piece.dropped_chars)
            else:
                yield _answer(piece, one, request_id)


async def _begun(
    parts: SupervisorParts,
    session_id: str,
    asked: AdmittedRequest,
    keys: EventKeys,
    metadata: Mapping[str, JsonValue] | None,
) -> None:
    """Begin the session, unless it is there already."""
    title = asked.text.strip().partition("\n")[0][:MAX_TITLE_CHARS]
    try:
        await parts.sessions.create(
            title=title, owner=asked.owner, session_id=session_id, metadata=dict(metadata or {}), keys=keys
        )
    except SubletError as error:
        if error.code != "CONFLICT":
            raise


def _answer(output: UnifiedAgentOutput, session_id: str, request_id: str) -> AskAnswer:
    route = output.route
    asks, rejects = output.decision == "ask_human", output.decision == "reject"
    return AskAnswer(
        finger_session_id=session_id,
        request_id=request_id,
        route_decision=output.decision,
        target=route.target if route else "",
        confidence=route.confidence if route else 1,
        reason=route.reason if route else "",
        result=None if asks or rejects else output.text,
        question=output.text if asks else None,
        options=list(route.options) if route and asks else [],
        agent_id=None if asks or rejects else output.agent_id,
        provider_session_id=output.provider_session_id,
        structured=output.structured,
        warnings=list(output.warnings),
    )
