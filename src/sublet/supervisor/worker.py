"""An agent that does the work itself, through its provider, in the session that it had before (SuperAgent 4.3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from anyio import to_thread

from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import Documented
from sublet.protocol.errors import AgentEnd, ErrorCode, LocalCode, SubletError
from sublet.protocol.events import EventKeys, EventKind
from sublet.supervisor.agent import (
    AgentHealth,
    AgentInitContext,
    AgentRunContext,
    UnifiedAgentInput,
    UnifiedAgentOutput,
)
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.agent_questions import AgentQuestion, AgentQuestions
from sublet.supervisor.job import Outcome, Provider, on_the_way
from sublet.supervisor.prompt_kind import prompt_kind
from sublet.supervisor.readiness import lacks
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.tool_gate import ToolGate

MAX_REPAIRS_TOLD: Final = 5


class WorkerAgent:
    """Implements ``UnifiedAgent`` for one entry of ``agent.json``.

    Args:
        config: the entry.
        provider: returns what does its work now.
        sessions: where its provider's sessions are bound.
        gate: makes what stands before its tools in one run; None where no tool is governed.
        questions: takes what it asks a person meanwhile.
    """

    def __init__(
        self,
        config: AgentConfig,
        provider: Callable[[], Provider],
        sessions: SessionControl,
        gate: Callable[[AgentConfig, AgentRunContext], ToolGate] | None,
        questions: AgentQuestions | None,
    ) -> None:
        self._gate = gate
        self._questions = questions
        self._config = config
        self._provider = provider
        self._sessions = sessions

    @property
    def id(self) -> str:
        """``UnifiedAgent.id``."""
        return self._config.id

    @property
    def role(self) -> str:
        """``UnifiedAgent.role``."""
        return self._config.role

    @property
    def provider(self) -> str:
        """``UnifiedAgent.provider``."""
        return provider_label(self._config)

    async def initialize(self, ctx: AgentInitContext) -> None:
        """``UnifiedAgent.initialize``: a provider starts what it needs when it is asked to work."""

    async def shutdown(self) -> None:
        """``UnifiedAgent.shutdown``: whatever it started ended with each call."""

    async def health(self) -> AgentHealth:
        """``UnifiedAgent.health``."""
        try:
            self._provider()
        except (SubletError, KeyError) as error:
            return AgentHealth(ok=False, detail=str(error))
        missing = await to_thread.run_sync(lacks, self._config)
        return AgentHealth(ok=not missing, detail="; ".join(map(str, missing)))

    async def handle(self, request: UnifiedAgentInput, ctx: AgentRunContext) -> UnifiedAgentOutput:
        """Have the provider work on ``request``: ``UnifiedAgent.handle``.

        Raises:
            SubletError: ``TASK_FAILED`` with the end of what the agent said; ``INVALID_ARGUMENT`` for a schema that
                can't be used.
            GuardrailFailed: no answer satisfied the schema of the request.
        """
        warnings: list[str] = []
        if request.schema is not None and prompt_kind(self._config) == "script":
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"agent {self.id} runs scripts and has no model, so its answer can't be held to a schema",
                "Leave the schema out, or ask an agent with a model; `sublet agents` lists them.",
            )
        if request.schema is None:
            # Only who was called by a person or a client has somebody to ask.
            asks = self._questions if not ctx.chain.execution_chain else None
            with asks.collected(ctx.job.delegation_id) if asks else nullcontext(AgentQuestion()) as asked:
                output = self._output(await self._run(request.text, ctx, warnings), warnings)
            if not asked.question:
                return output
            return replace(output, decision="ask_human", text=asked.question, options=asked.options)
        return await self._structured(request, request.schema, ctx, warnings)

    async def _run(self, prompt: str, ctx: AgentRunContext, warnings: list[str]) -> Outcome:
        """Have the provider work on one prompt."""
        bound = await self._bound(ctx, warnings)
        ctx = replace(ctx, provider_session_id=bound)
        gate = self._gate(self._config, ctx) if self._gate is not None else ctx.job.gate
        job = replace(ctx.job, prompt=prompt, provider_session_id=bound, chain=ctx.chain, gate=gate)
        outcome = await self._provider().run(job, ctx.report)
        await self._bind(outcome, bound, ctx, warnings)
        if outcome.reason != "done":
            raise SubletError(
                ErrorCode.TASK_FAILED,
                f"agent {self.id}: {outcome.why()}",
                outcome.summary,
                agent_end=AgentEnd(outcome.reason, outcome.exit_code, outcome.summary),
            )
        return outcome

    async def _structured(
        self, request: UnifiedAgentInput, schema: Mapping[str, JsonValue], ctx: AgentRunContext, warnings: list[str]
    ) -> UnifiedAgentOutput:
        """Have the provider work until its answer satisfies ``schema``, as often as the guardrail asks."""
        from sublet.policy.guardrail.guard import guarded  # what reads schemas is loaded by whoever uses one

        outcomes: list[Outcome] = []

        async def ask(prompt: str) -> str:
            # A name of its own for each run, since limits are kept by it.
            run_id = f"{ctx.job.delegation_id}-{len(outcomes)}" if outcomes else ctx.job.delegation_id
            job = replace(ctx.job, delegation_id=run_id, answer_schema=schema)
            inner = replace(ctx, report=on_the_way(ctx.report), job=job)
            outcomes.append(await self._run(prompt, inner, warnings))
            return outcomes[-1].summary

        async def failed(kept: Documented) -> None:
            said = replace(ctx, provider_session_id=outcomes[-1].provider_session_id)
            await ctx.emit(EventKind.GUARDRAIL_FAILED, said.keys(self.id), kept.data, kept.documents)

        passed = await guarded(ask, request.text, schema, request.guard, failed)
        if passed.repairs:
            warnings.append(f"the answer of agent {self.id} was mended: {', '.join(passed.repairs[:MAX_REPAIRS_TOLD])}")
        text = json.dumps(passed.value, ensure_ascii=False)
        checked: dict[str, JsonValue] = {"attempt": passed.attempts, "repairs": list(passed.repairs)}
        evidence = Documented({**checked, **passed.evidence.data}, passed.evidence.documents)
        return replace(self._output(outcomes[-1], warnings), text=text, structured=passed.value, checked=evidence)

    def _output(self, outcome: Outcome, warnings: list[str]) -> UnifiedAgentOutput:
        return UnifiedAgentOutput(
            text=outcome.summary,
            decision="direct_reply",
            agent_id=self.id,
            outcome=outcome,
            provider_session_id=outcome.provider_session_id,
            warnings=tuple(warnings),
        )

    async def _bound(self, ctx: AgentRunContext, warnings: list[str]) -> str | None:
        """Return the provider's session to go on with."""
        if not ctx.finger_session_id or not self._config.resumes:
            return None
        scope = self._config.session.binding_scope
        found = await self._sessions.binding(ctx.finger_session_id, self.id, self.provider, scope)
        warnings += [f"{one.file} was damaged and put aside as {one.set_aside_as}" for one in found.damage]
        return found.binding.provider_session_id if found.binding else None

    async def _bind(self, outcome: Outcome, bound: str | None, ctx: AgentRunContext, warnings: list[str]) -> None:
        """Keep what the provider went on with; where it began anew although it had a session, say so."""
        now = outcome.provider_session_id
        if not ctx.finger_session_id or now is None:
            return
        if bound is not None and now != bound:
            warnings.append(f"agent {self.id} could not go on with its earlier session and began a new one")
        keys: EventKeys = ctx.keys(self.id)
        await self._sessions.bind(
            ctx.finger_session_id,
            self.id,
            self.provider,
            now,
            role=self.role,
            scope=self._config.session.binding_scope,
            keys=keys,
        )


def provider_label(config: AgentConfig) -> str:
    """Return what a binding calls the provider of an agent: its type, and for a preset its name."""
    name = getattr(config.provider, "name", None)
    return str(name) if config.provider.type == "preset" and name else config.provider.type
