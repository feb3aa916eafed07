"""The supervisor: decides where a request goes, has it done there, and remembers the route (SuperAgent 4.3, 5.2).

It does no work of its own, and is no caller in anybody's chain: who asks for the work is whoever asked it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sublet.policy.decision import Action, Decision, Subject
from sublet.policy.guardrail.options import GuardrailFailed
from sublet.policy.recorded import DECIDED
from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.text import clean
from sublet.supervisor.agent import (
    AgentHealth,
    AgentInitContext,
    AgentRunContext,
    UnifiedAgentInput,
    UnifiedAgentOutput,
)
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.dispatch import MAX_SUMMARY_CHARS, Ask, Dispatcher, ModuleHub
from sublet.supervisor.questions import PENDING, PendingQuestion, no_question, pending
from sublet.supervisor.router.after_answer import asked_by, unguarded
from sublet.supervisor.router.classifier import Classifier
from sublet.supervisor.router.route import (
    MAX_CANDIDATES,
    MAX_MODULES,
    MAX_TEXT_JOURNALLED,
    Asker,
    Candidate,
    Classification,
    GivenAnswer,
    Route,
    RouterConfig,
    RouteRequest,
    SkillFacts,
)
from sublet.supervisor.router.rules import MAX_ROUNDS, answered, chosen_option, decide, needs_classifier, unanswerable
from sublet.supervisor.router.syntax import is_direct_hub
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.sessions.session_parts import LastRoute, MainSession, SessionMessage, SessionRoutingState
from sublet.supervisor.worker import provider_label

SUPERVISOR: Final = "supervisor"
AGENT: Final = "agent"
"""In the metadata of a request: the agent that the caller names."""
ANSWER: Final = "answer"
"""In the metadata of a request: that its text answers the session's question."""
_ANSWERS: Final = {"dispatch_module": "a module's", "direct_reply": "the supervisor's own"}
"""Whose answer it is where no agent gives it."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the supervisor knows of this daemon.

    Args:
        agents: those offered now, the default one first.
        hub: the modules that ``/hub`` reaches.
        may: says without telling anybody whether a caller may have an agent.
        load: how much of what an agent may do at once is under way, from 0 to 1.
        config: how the router decides.
        question_seconds: how long a question waits for its answer.
        now: the time as RFC 3339.
        clock: Unix time in seconds.
        capabilities: returns the digest of the registry of capabilities.
    """

    agents: Callable[[], Sequence[AgentConfig]]
    hub: ModuleHub
    may: Callable[[Subject, Action, str], Decision]
    load: Callable[[str], float]
    config: RouterConfig
    question_seconds: float
    now: Callable[[], str]
    clock: Callable[[], float]
    capabilities: Callable[[], str]

    def snapshot_version(self) -> str:
        """Return what agents and modules there are as one short text (``capabilitySnapshotVersion``)."""
        facts: list[JsonValue] = [
            [one.id, provider_label(one), [[skill.id, list(skill.tags)] for skill in one.skills]]
            for one in self.agents()
        ]
        modules: list[JsonValue] = [*sorted(self.hub.names())]
        raw = canonical_json([facts, modules, self.capabilities()])
        return hashlib.sha256(raw).hexdigest()[:16]


class SupervisorAgent:
    """Implements ``UnifiedAgent``: plain requests go through it, and what begins with ``/hub`` past its router's rules.

    Args:
        around: what it knows of this daemon.
        dispatcher: makes the calls.
        sessions: what it remembers.
        ask: asks policy before a module gets anything.
        classifier: proposes routes where the rules are unsure; None where there is none.
    """

    def __init__(
        self,
        around: Surroundings,
        dispatcher: Dispatcher,
        sessions: SessionControl,
        ask: Ask,
        classifier: Classifier | None = None,
    ) -> None:
        self._around = around
        self._dispatcher = dispatcher
        self._sessions = sessions
        self._ask = ask
        self._classifier = classifier

    @property
    def id(self) -> str:
        """``UnifiedAgent.id``."""
        return SUPERVISOR

    @property
    def role(self) -> str:
        """``UnifiedAgent.role``."""
        return "orchestrator"

    @property
    def provider(self) -> str:
        """``UnifiedAgent.provider``."""
        return "supervisor"

    async def initialize(self, ctx: AgentInitContext) -> None:
        """``UnifiedAgent.initialize``."""

    async def shutdown(self) -> None:
        """``UnifiedAgent.shutdown``."""
        if self._classifier is not None:
            await self._classifier.aclose()

    async def health(self) -> AgentHealth:
        """``UnifiedAgent.health``."""
        return AgentHealth(ok=True, detail="" if self._around.agents() else "no agent is offered")

    def candidates(self, caller: Subject) -> tuple[Candidate, ...]:
        """Return the agents as ``caller`` may or may not have them, without those that are hidden from it."""
        action = action_for(caller)
        decided = [(one, self._around.may(caller, action, one.id)) for one in self._around.agents()]
        return tuple(
            candidate_of(one, decision, self._around.load(one.id)) for one, decision in decided if not decision.hidden
        )[:MAX_CANDIDATES]

    def modules(self, caller: Subject) -> tuple[str, ...]:
        """Return the modules that ``/hub`` reaches, without those that are hidden from ``caller``."""
        names = self._around.hub.names()
        return tuple(one for one in names if not self._around.may(caller, Action.MODULE_DISPATCH, one).hidden)

    async def handle(self, request: UnifiedAgentInput, ctx: AgentRunContext) -> UnifiedAgentOutput:
        """Decide where ``request`` goes and return what came of it: ``UnifiedAgent.handle``.

        A decision to ask or to reject is an answer as well, with the reason in ``route``.

        Raises:
            SubletError: ``SESSION_CLOSED``, ``CONFLICT`` for an answer to no question, or what the target fails with.
        """
        session = await self._sessions.get(ctx.finger_session_id)
        text, route, facts, classified = await self._route(request, session, ctx)
        await self._note(ctx, SessionMessage(at=self._around.now(), role="user", text=request.text))
        decided: dict[str, JsonValue] = {
            **route.model_dump(mode="json", by_alias=True, exclude={"message"}),
            "request": facts.model_copy(update={"text": facts.text[:MAX_TEXT_JOURNALLED]}).model_dump(
                mode="json", by_alias=True
            ),
            "classified": classified.model_dump(mode="json", by_alias=True) if classified else None,
            "asker": self._asker(ctx).model_dump(mode="json", by_alias=True),
            "answer": self._given(route, request, session),
        }
        target = route.target if route.decision == "dispatch_agent" else None
        keys = ctx.keys(target).model_copy(update={"route_decision": route.decision})
        cause = await ctx.emit(EventKind.ROUTE_DECIDED, keys, decided)
        inner = replace(ctx, causation_id=cause, route_decision=route.decision)
        question = self._question(route, text, session, request, ctx)
        try:
            output = await self._carried_out(route, request, inner, question)
        except GuardrailFailed as failed:
            route = unguarded(route, failed)
            question = self._question(route, text, session, request, ctx)
            output = await self._carried_out(route, request, inner, question)
        except SubletError as error:
            await self._remember(session, route, None)
            note = f"{error.message} {error.hint}".strip()
            failure = SessionMessage(
                at=self._around.now(),
                role="note",
                text=note,
                agent_id=target,
                route_decision=route.decision,
                code=str(error.code),
            )
            await self._note(ctx, failure)
            raise
        if route.decision == "dispatch_agent" and output.decision == "ask_human":
            asking = route.target
            route = asked_by(asking, output)
            question = self._question(route, text, session, request, ctx, asking)
            output = await self._carried_out(route, request, inner, question)
        await self._remember(session, route, question)
        await self._note(
            ctx,
            SessionMessage(
                at=self._around.now(),
                role="agent",
                text=output.text,
                agent_id=output.agent_id,
                route_decision=route.decision,
            ),
        )
        return replace(output, route=route, decision=route.decision)

    async def _route(
        self, request: UnifiedAgentInput, session: MainSession, ctx: AgentRunContext
    ) -> tuple[str, Route, RouteRequest, Classification | None]:
        """Return what is asked after all, where it goes, and what that was decided from."""
        waiting = pending(session, self._around.clock())
        text, chosen = request.text, None
        is_answer = request.metadata.get(ANSWER) is True
        if is_answer and waiting is None:
            raise no_question(session.finger_session_id)
        if waiting is not None and waiting.agent:
            if is_answer:
                # The agent goes on in its own session, which may not remember what it asked.
                text = f"You asked: {waiting.question}\n\nThe answer: {chosen_option(waiting.options, text)}"
                facts = self._facts(text, request, session, ctx, waiting.agent)
                return text, decide(facts, None), facts, None
        elif waiting is not None and not is_direct_hub(text):
            facts = self._facts(waiting.text, request, session, ctx)
            chosen = answered(facts, waiting.options, text)
            if chosen is not None:
                return waiting.text, chosen, facts, None
            if is_answer:
                text = f"{waiting.text}\n\n{text}"
                if waiting.round >= MAX_ROUNDS:
                    return text, unanswerable(), self._facts(text, request, session, ctx), None
        facts = self._facts(text, request, session, ctx)
        classified = None
        if self._classifier is not None and needs_classifier(facts):
            classified = await self._classifier.classify(facts)
        return text, decide(facts, classified), facts, classified

    def _asker(self, ctx: AgentRunContext) -> Asker:
        caller = ctx.subject
        action = str(action_for(caller))
        return Asker(kind=caller.kind, name=caller.name, role=caller.role, action=action, at=self._around.clock())

    def _given(self, route: Route, request: UnifiedAgentInput, session: MainSession) -> JsonValue:
        """Return the answer from which a route came, as far as the event of the route keeps it."""
        if route.rule != "answer":
            return None
        waiting = pending(session, self._around.clock())
        options = waiting.options if waiting is not None else ()
        text = request.text[:MAX_TEXT_JOURNALLED]
        return GivenAnswer(text=text, options=options).model_dump(mode="json", by_alias=True)

    def _facts(
        self, text: str, request: UnifiedAgentInput, session: MainSession, ctx: AgentRunContext, agent: str = ""
    ) -> RouteRequest:
        named = agent or request.metadata.get(AGENT)
        routing = session.routing
        return RouteRequest(
            text=text,
            agent=named if isinstance(named, str) else "",
            candidates=self.candidates(ctx.subject),
            modules=self.modules(ctx.subject)[:MAX_MODULES],
            last_route=routing.last_dispatch if routing else None,
            snapshot_changed=routing is not None
            and routing.capability_snapshot_version != self._around.snapshot_version(),
            config=self._around.config,
        )

    async def _carried_out(
        self, route: Route, request: UnifiedAgentInput, ctx: AgentRunContext, question: PendingQuestion | None
    ) -> UnifiedAgentOutput:
        if request.schema is not None and (whose := _ANSWERS.get(route.decision)):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"the answer is {whose}, which can't be held to a schema",
                "Leave the schema out, or ask an agent with a model; `sublet agents` lists them.",
            )
        match route.decision:
            case "dispatch_agent":
                asked = replace(request, text=route.message)
                return await self._dispatcher.dispatch(route.target, asked, ctx, action=action_for(ctx.subject))
            case "dispatch_module":
                return await self._to_module(route, ctx)
            case "ask_human":
                data: dict[str, JsonValue] = {"question": route.message, "options": list(route.options)}
                keys = ctx.keys().model_copy(update={"route_decision": route.decision})
                await ctx.emit(EventKind.ASK_HUMAN, keys, {**data, "round": question.round if question else 1})
                return UnifiedAgentOutput(text=route.message, decision="ask_human", agent_id=self.id)
            case "direct_reply":
                return UnifiedAgentOutput(text=route.message, decision="direct_reply", agent_id=self.id)
            case _:
                return UnifiedAgentOutput(text=route.reason, decision="reject", agent_id=self.id)

    async def _to_module(self, route: Route, ctx: AgentRunContext) -> UnifiedAgentOutput:
        record = await self._ask(ctx.subject, Action.MODULE_DISPATCH, route.target, keys=ctx.keys())
        sent: dict[str, JsonValue] = {"module": route.target, DECIDED: record.data()}
        cause = await ctx.emit(EventKind.DISPATCH_SENT, ctx.keys(), sent, record.documents)
        inner = replace(ctx, causation_id=cause)
        try:
            text = await self._around.hub.send(route.target, route.message, inner)
        except SubletError as error:
            failed: dict[str, JsonValue] = {"module": route.target, "ok": False, "code": str(error.code)}
            await ctx.emit(EventKind.DISPATCH_RESULT, inner.keys(), {**failed, "message": error.message})
            raise
        done: dict[str, JsonValue] = {"module": route.target, "ok": True, "summary": clean(text, MAX_SUMMARY_CHARS)}
        await ctx.emit(EventKind.DISPATCH_RESULT, inner.keys(), done)
        return UnifiedAgentOutput(text=text, decision="dispatch_module", agent_id=route.target)

    def _question(
        self,
        route: Route,
        text: str,
        session: MainSession,
        request: UnifiedAgentInput,
        ctx: AgentRunContext,
        agent: str = "",
    ) -> PendingQuestion | None:
        if route.decision != "ask_human":
            return None
        before = pending(session, self._around.clock())
        again = before is not None and request.metadata.get(ANSWER) is True and not agent and not before.agent
        return PendingQuestion(
            request_id=ctx.request_id,
            question=route.message,
            options=route.options,
            text=text,
            expires_at=self._around.clock() + self._around.question_seconds,
            round=before.round + 1 if before is not None and again else 1,
            agent=agent,
        )

    async def _remember(self, session: MainSession, route: Route, question: PendingQuestion | None) -> None:
        """Write back where it went; and the question that the session waits with now, or that it waits no more."""
        last = LastRoute(
            target=route.target,
            decision=route.decision,
            confidence=route.confidence,
            timestamp=self._around.now(),
        )
        before = session.routing.last_dispatch if session.routing else None
        routing = SessionRoutingState(
            finger_session_id=session.finger_session_id,
            last_route=last,
            last_dispatch=last if route.decision == "dispatch_agent" else before,
            capability_snapshot_version=self._around.snapshot_version(),
        )
        kept = question.model_dump(mode="json", by_alias=True) if question else None
        await self._sessions.remember(session.finger_session_id, routing, {PENDING: kept})

    async def _note(self, ctx: AgentRunContext, message: SessionMessage) -> None:
        await self._sessions.record(ctx.finger_session_id, message.model_copy(update={"request_id": ctx.request_id}))


def action_for(caller: Subject) -> Action:
    """Return what a caller asks policy for when it wants an agent: a client's message has a name of its own."""
    return Action.AGENT_MESSAGE if caller.kind in ("a2a", "peer", "node") else Action.AGENT_DISPATCH


def candidate_of(config: AgentConfig, decision: Decision, load: float) -> Candidate:
    """Return an agent as the router sees it."""
    return Candidate(
        agent_id=config.id,
        role=config.role,
        provider=provider_label(config),
        skills=tuple(
            SkillFacts(id=skill.id, name=skill.name, description=skill.description, tags=skill.tags)
            for skill in config.skills
        ),
        cost=config.routing.cost,
        trust=config.routing.trust,
        load=load,
        denied="" if decision.allowed else decision.reason[:500] or "policy",
    )
