"""An agent that does the work itself, through its provider, in the session that it had before (SuperAgent 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sublet.protocol.errors import AgentEnd, ErrorCode, SubletError
from sublet.protocol.events import EventKeys
from sublet.supervisor.agent import AgentInitContext, AgentRunContext, Health, UnifiedAgentInput, UnifiedAgentOutput
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.model import Outcome, Provider
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.tools import ToolGate


class WorkerAgent:
    """Implements ``UnifiedAgent`` for one entry of ``agent.json``.

    Args:
        config: the entry.
        provider: returns what does its work now.
        sessions: where its provider's sessions are bound.
        gate: makes what stands before its tools in one run; None where no tool is governed.
    """

    def __init__(
        self,
        config: AgentConfig,
        provider: Callable[[], Provider],
        sessions: SessionControl,
        gate: Callable[[AgentConfig, AgentRunContext], ToolGate] | None = None,
    ) -> None:
        self._gate = gate
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

    async def health(self) -> Health:
        """``UnifiedAgent.health``."""
        try:
            self._provider()
        except (SubletError, KeyError) as error:
            return Health(ok=False, detail=str(error))
        return Health(ok=True)

    async def handle(self, request: UnifiedAgentInput, ctx: AgentRunContext) -> UnifiedAgentOutput:
        """Have the provider work on ``request``: ``UnifiedAgent.handle``.

        Raises:
            SubletError: ``TASK_FAILED`` with the end of what the agent said.
        """
        warnings: list[str] = []
        bound = await self._bound(ctx, warnings)
        gate = self._gate(self._config, ctx) if self._gate is not None else ctx.job.gate
        job = replace(ctx.job, prompt=request.text, provider_session_id=bound, chain=ctx.chain, gate=gate)
        outcome = await self._provider().run(job, ctx.report)
        await self._bind(outcome, bound, ctx, warnings)
        if outcome.reason != "done":
            raise SubletError(
                ErrorCode.TASK_FAILED,
                f"agent {self.id}: {outcome.why()}",
                outcome.summary,
                agent_end=AgentEnd(outcome.reason, outcome.exit_code, outcome.summary),
            )
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
