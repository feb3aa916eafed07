"""Which tools an agent may be told of (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Callable

from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.policy.decision import Action, Resource, Subject


class AgentCalls:
    """Looks ahead at what agents may call. Nothing is written down: each call is asked for when it comes.

    Args:
        gate: asks policy.
        role_of: returns the role of an agent by its id; nothing where it is not offered.
    """

    def __init__(self, gate: Gatekeeper, role_of: Callable[[str], str]) -> None:
        self._gate = gate
        self._role_of = role_of

    def could_call(self, agent_id: str, tool: str) -> bool:
        """Tell whether policy could let an agent call a tool; of others it is not told."""
        agent = Subject("agent", agent_id, role=self._role_of(agent_id))
        resource = Resource(tool, {"access_mode": "rw"})
        return self._gate.foresee(agent, Action.TOOL_CALL, resource).decision.outcome != "deny"
