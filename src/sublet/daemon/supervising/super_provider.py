"""A super agent in the place of a provider, for work that is asked for through no session, such as an assignment."""

from __future__ import annotations

from sublet.policy.decision import Subject
from sublet.supervisor.agent import AgentRunContext, Emit
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.dispatch import Dispatcher
from sublet.supervisor.job import Job, Provider, Report
from sublet.supervisor.super_agent import AgentProvider, SuperAgent


def super_provider(config: AgentConfig, dispatcher: Dispatcher, emit: Emit) -> Provider:
    """Return what does the work of a super agent.

    Args:
        config: of the agent, in whose name policy is asked.
        dispatcher: calls its workers.
        emit: journals what it does.
    """
    subject = Subject("agent", config.id, role=config.role)

    def context(job: Job, report: Report) -> AgentRunContext:
        return AgentRunContext(
            finger_session_id="",
            request_id=job.delegation_id,
            chain=job.chain,
            emit=emit,
            job=job,
            report=report,
            subject=subject,
        )

    return AgentProvider(SuperAgent(config, dispatcher), context)
