"""Makes the gate of each run: of an assignment's agent, and of an agent that the supervisor has asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from sublet.daemon.approvals.gate_parts import GateParts
from sublet.daemon.approvals.run_facts import RunFacts
from sublet.daemon.approvals.run_gate import RunGate
from sublet.daemon.storage.records import AssignmentRecord
from sublet.policy.decision import Subject
from sublet.policy.names import plain
from sublet.protocol.chain import Chain
from sublet.protocol.events import EventKeys
from sublet.supervisor.agent import AgentRunContext
from sublet.supervisor.agent_config import AgentConfig, check_governed
from sublet.supervisor.job import Deadline, JobResource
from sublet.supervisor.provider_config import SuperConfig


class Gates:
    """Makes gates; ``agents`` are those offered now."""

    def __init__(self, parts: GateParts, agents: Callable[[], Sequence[AgentConfig]]) -> None:
        self._parts = parts
        self._agents = agents

    def of_assignment(
        self,
        record: AssignmentRecord,
        resources: Sequence[JobResource],
        deadline: Deadline,
        waiting: Callable[[str | None], None],
    ) -> RunGate:
        """Return the gate for the tools of an assignment's agent: ``GateOfAssignment``."""
        role = next((one.role for one in self._agents() if one.id == record.agent), "")
        return RunGate(
            self._parts,
            RunFacts(
                subject=Subject("agent", record.agent, role=role),
                scope=record.id,
                resources=resources,
                keys=EventKeys(agent_id=record.agent, request_id=record.id),
                deadline=deadline,
                delegation_id=record.id,
                peer=record.peer,
                chain=_chain(record),
                waiting=waiting,
                narrowing=record.narrowing,
            ),
        )

    def of_run(self, config: AgentConfig, ctx: AgentRunContext) -> RunGate:
        """Return the gate for an agent in a run of the supervisor's: ``GateMaker``."""
        check_governed(config, ctx.job.narrowing)
        subject, keys = Subject("agent", config.id, role=config.role), ctx.keys(config.id)
        if isinstance(ctx.job.gate, RunGate):
            return ctx.job.gate.of_agent(subject, keys)
        deadline = ctx.job.deadline or Deadline(anyio.current_time() + ctx.job.remaining_seconds)
        return RunGate(
            self._parts,
            RunFacts(
                subject=subject,
                scope=ctx.finger_session_id or ctx.job.delegation_id,
                resources=ctx.job.resources,
                keys=keys,
                deadline=deadline,
                chain=ctx.chain,
                narrowing=ctx.job.narrowing,
            ),
        )

    def subject_of(self, key: str) -> Subject | None:
        """Return whom a grant for ``key`` is for: an agent of this daemon, or an MCP host as ``mcp:NAME``."""
        kind, colon, name = key.partition(":")
        if colon:
            return Subject("mcp", name) if kind == "mcp" and name else None
        return next((Subject("agent", one.id, role=one.role) for one in self._agents() if one.id == plain(key)), None)

    def nests(self) -> dict[str, list[str]]:
        """Return which agents each agent calls as its own workers."""
        return {
            one.id: [step.agent for step in one.provider.workers]
            for one in self._agents()
            if isinstance(one.provider, SuperConfig)
        }


def _chain(record: AssignmentRecord) -> Chain:
    sent = record.invite.sublet.chain
    return Chain(tuple(sent.execution_chain) if sent is not None else ())
