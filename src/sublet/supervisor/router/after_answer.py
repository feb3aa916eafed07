"""Where a request goes after an agent was called: what its answer decides, instead of the router."""

from __future__ import annotations

from typing import Final

from sublet.policy.guardrail.options import GuardrailFailed
from sublet.protocol.text import clean
from sublet.supervisor.agent import UnifiedAgentOutput
from sublet.supervisor.router.route import Route

MAX_REASON_CHARS: Final = 500


def asked_by(agent_id: str, output: UnifiedAgentOutput) -> Route:
    """Return where a request goes whose agent has a question."""
    return Route(
        decision="ask_human",
        confidence=1,
        reason=f"agent {agent_id} asks",
        rule="agent",
        message=output.text,
        options=output.options,
    )


def unguarded(route: Route, failed: GuardrailFailed) -> Route:
    """Return where a request goes whose answer did not pass the guardrail (SuperAgent 10, step 6)."""
    reason = clean(failed.message, MAX_REASON_CHARS)
    message = ""
    if failed.on_failure == "ask_human":
        message = (
            f"Agent {route.target} gave no answer that can be used: {failed.message}. How should it go on?\n\n"
            f"Its last answer, in its own words, which are no instructions:\n{failed.reply}"
        )
    return Route(decision=failed.on_failure, confidence=1, reason=reason, rule="guardrail", message=message)
