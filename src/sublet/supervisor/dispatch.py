"""One agent, or a person, calls another: chain, policy, lease and journal of every such call (SuperAgent 5.3, 9.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final, Protocol

import anyio
import structlog

from sublet.policy.decision import Action, Subject
from sublet.policy.recorded import DECIDED, Record
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain, address, check_call
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKeys, EventKind
from sublet.protocol.ids import new_lease_id
from sublet.protocol.text import clean
from sublet.supervisor.agent import AgentRunContext, UnifiedAgent, UnifiedAgentInput, UnifiedAgentOutput
from sublet.supervisor.job import Deadline

MAX_SUMMARY_CHARS: Final = 4_000
"""Of an answer that the journal keeps."""
SAME_SECONDS: Final = 0.05
"""What an agent fails with so shortly before the lease of its call is over, it fails with because of that."""

log = structlog.get_logger(__name__)


class Ask(Protocol):
    """Asks policy; the daemon's gatekeeper."""

    async def __call__(
        self,
        caller: Subject,
        action: Action,
        name: str,
        *,
        keys: EventKeys | None = None,
        **attributes: str | int | bool,
    ) -> Record:
        """Return what it was decided from, if it may be done; ``keys`` are of the run for which it is asked.

        Raises:
            SubletError: ``POLICY_DENIED``.
        """


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How deep calls may be nested, and how many seconds one of them may take."""

    max_depth: int
    lease_seconds: float


class Dispatcher:
    """Makes calls to the agents of this daemon. Nothing is started before chain and policy have let it pass.

    Args:
        node_id: of this daemon.
        find: returns an agent by its id, or None.
        ask: asks policy.
        limits: what holds for each call.
        slot: holds one of the daemon's slots for a job, by its id, while a request is worked on; calls between agents
            are part of a request, and take none.
    """

    def __init__(
        self,
        node_id: str,
        find: Callable[[str], Awaitable[UnifiedAgent | None]],
        ask: Ask,
        limits: CallLimits,
        slot: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._slot = slot
        self._running: Counter[str] = Counter()
        self._node_id = node_id
        self._find = find
        self._ask = ask
        self._limits = limits

    def running(self, agent_id: str) -> int:
        """Return how many calls of an agent are under way."""
        return self._running[agent_id]

    def check(self, agent_id: str | None, chain: Chain) -> None:
        """Refuse a call by its chain alone, before anything is done for it; None is an agent that is not chosen yet.

        Raises:
            SubletError: as ``check_call``.
        """
        target = None if agent_id is None else address(agent_id, self._node_id)
        check_call(chain, target, max_depth=self._limits.max_depth)

    async def dispatch(
        self,
        agent_id: str,
        request: UnifiedAgentInput,
        ctx: AgentRunContext,
        *,
        caller: str | None = None,
        action: Action = Action.AGENT_DISPATCH,
        declared: bool = False,
    ) -> UnifiedAgentOutput:
        """Have an agent handle ``request`` and return what it says.

        Args:
            agent_id: who is called.
            request: what is asked of it.
            ctx: of who calls.
            caller: id of the calling agent, which the chain then names; None where a person or a client asks.
            action: what policy is asked for.
            declared: whether the caller's own configuration names this agent as one that it works with.

        Raises:
            SubletError: ``LOOP_REFUSED``, ``DEPTH_REFUSED``, ``LEASE_OVER``, ``POLICY_DENIED``, ``NOT_FOUND``, or what
                the agent fails with.
        """
        chain = self._chain(_now(ctx), caller)
        try:
            self.check(agent_id, chain)
        except SubletError as error:
            await self._refused(agent_id, error, chain, ctx)
            raise
        attributes = {} if action is Action.AGENT_MESSAGE else {"declared": declared, "depth": chain.nesting_depth}
        record = await self._ask(ctx.subject, action, agent_id, keys=ctx.keys(agent_id), **attributes)
        agent = await self._find(agent_id)
        if agent is None:
            raise SubletError(LocalCode.NOT_FOUND, f"there is no agent {agent_id} here", "See: sublet agents")
        with self._slot(ctx.job.delegation_id) if caller is None else nullcontext():
            return await self._called(agent, request, ctx, chain, record)

    async def _called(
        self, agent: UnifiedAgent, request: UnifiedAgentInput, ctx: AgentRunContext, chain: Chain, record: Record
    ) -> UnifiedAgentOutput:
        """Journal the call, make it, and journal what came of it."""
        agent_id = agent.id
        sent: dict[str, JsonValue] = {
            "executionChain": list(chain.execution_chain),
            "nestingDepth": chain.nesting_depth,
            "leaseId": chain.lease_id,
            "ttl": chain.ttl,
            "provider": agent.provider,
            DECIDED: record.data(),
        }
        cause = await ctx.emit(EventKind.DISPATCH_SENT, ctx.keys(agent_id), sent, record.documents)
        job = replace(ctx.job, chain=chain)
        if chain.ttl is not None:
            # The agent's own calls count from what is left of this lease then, not from what it has now. Whatever was
            # waited for meanwhile, such as an approval, gives nobody more time than its caller has.
            ends = anyio.current_time() + chain.ttl
            if ctx.job.deadline is not None:
                ends = min(ends, ctx.job.deadline.at)
            job = replace(job, deadline=Deadline(ends), remaining_seconds=chain.ttl)
        inner = replace(ctx, chain=chain, causation_id=cause, job=job)
        try:
            output = await self._leased(agent, request, inner)
        except SubletError as error:
            failed: dict[str, JsonValue] = {
                "ok": False,
                "code": str(error.code),
                "message": error.message,
                "nestingDepth": chain.nesting_depth,
            }
            if error.agent_end is not None:
                failed["end"] = error.agent_end.reason
            await ctx.emit(EventKind.DISPATCH_RESULT, inner.keys(agent_id), failed)
            raise
        done: dict[str, JsonValue] = {
            "ok": True,
            "summary": clean(output.text, MAX_SUMMARY_CHARS),
            "nestingDepth": chain.nesting_depth,
            "warnings": list(output.warnings),
        }
        if output.checked is not None:
            done["guardrail"] = dict(output.checked.data)
        keys = inner.keys(agent_id).model_copy(update={"provider_session_id": output.provider_session_id})
        await ctx.emit(EventKind.DISPATCH_RESULT, keys, done, output.checked.documents if output.checked else ())
        return output

    async def _leased(
        self, agent: UnifiedAgent, request: UnifiedAgentInput, ctx: AgentRunContext
    ) -> UnifiedAgentOutput:
        """Let the agent work until the lease of the call is over; then all that it started is ended."""
        ttl = ctx.chain.ttl
        self._running[agent.id] += 1
        try:
            with anyio.move_on_after(ttl) as lease:
                try:
                    return await agent.handle(request, ctx)
                except SubletError:
                    if anyio.current_time() < lease.deadline - SAME_SECONDS:
                        raise
        finally:
            self._running[agent.id] -= 1
        log.info("the lease of a call ended before the agent did", agent=agent.id, lease=ctx.chain.lease_id)
        raise SubletError(
            LocalCode.LEASE_OVER,
            f"agent {agent.id} was ended after {ttl:.0f} s, when the lease of the call was over",
            "Ask for less at once, or raise supervisor.lease_seconds in config.json.",
        )

    def _chain(self, before: Chain, caller: str | None) -> Chain:
        ttl = self._limits.lease_seconds
        if caller is not None:
            return before.called_by(address(caller, self._node_id), lease_id=new_lease_id(), ttl=ttl)
        return Chain(before.execution_chain, new_lease_id(), ttl if before.ttl is None else min(ttl, before.ttl))

    async def _refused(self, agent_id: str, error: SubletError, chain: Chain, ctx: AgentRunContext) -> None:
        await ctx.emit(
            EventKind.POLICY_REJECTED,
            ctx.keys(agent_id),
            {
                "subject": f"{ctx.subject.kind} {ctx.subject.name}".strip(),
                "action": str(Action.AGENT_DISPATCH),
                "resource": agent_id,
                "layer": "chain",
                "rule": str(error.code),
                "reason": error.message,
                "code": str(error.code),
                "target": address(agent_id, self._node_id),
                "executionChain": list(chain.execution_chain),
                "maxDepth": self._limits.max_depth,
                "ttl": chain.ttl,
            },
        )


def _now(ctx: AgentRunContext) -> Chain:
    """Return the chain of who calls, with the time that is left of its lease now."""
    deadline = ctx.job.deadline
    if deadline is None:
        return ctx.chain
    left = deadline.at - anyio.current_time()
    return replace(ctx.chain, ttl=left if ctx.chain.ttl is None else min(left, ctx.chain.ttl))


class ModuleHub(Protocol):
    """The modules that ``/hub`` reaches; whoever registers modules implements it."""

    def names(self) -> list[str]:
        """Return the ids of those that take input now."""

    async def send(self, module: str, text: str, ctx: AgentRunContext) -> str:
        """Hand ``text`` to a module and return what it answers. Policy has allowed it.

        Raises:
            SubletError: it is not there or fails.
        """


class NoModules:
    """A daemon without modules."""

    def names(self) -> list[str]:
        """``ModuleHub.names``."""
        return []

    async def send(self, module: str, text: str, ctx: AgentRunContext) -> str:
        """``ModuleHub.send``."""
        raise SubletError(LocalCode.NOT_FOUND, f"there is no module {module} here", "None is registered.")
