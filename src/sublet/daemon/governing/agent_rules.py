"""What ``agent.json`` says of tools, as rules of the agent layer."""

from __future__ import annotations

from collections.abc import Sequence

from sublet.policy.agent_rules import AgentTools, agent_rules
from sublet.policy.rules import Rule
from sublet.supervisor.agent_config import AgentConfig


def rules_of(agents: Sequence[AgentConfig]) -> tuple[Rule, ...]:
    """Return what ``agent.json`` says of the tools of ``agents``, as rules of the agent layer.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for an entry that could never do anything.
    """
    rules: list[Rule] = []
    for agent in agents:
        own = list(agent.governance.values())
        mode = next((one.approval_mode for one in own if one.approval_mode is not None), None)
        rules += agent_rules(
            AgentTools(
                agent.id,
                agent.tools.whitelist,
                agent.tools.blacklist,
                agent.tools.authorization_required,
                [name for one in own for name in one.allowed_tools],
                [name for one in own for name in one.disallowed_tools],
                mode,
            )
        )
    return tuple(rules)
