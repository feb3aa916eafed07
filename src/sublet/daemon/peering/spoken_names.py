"""What this daemon's configuration says of one peer by its name: rules of policy, and agents that a peer runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sublet.daemon.peering.peer_names import Spoken
from sublet.policy.named_peers import NamedPeers
from sublet.policy.rules import Rule
from sublet.supervisor.a2a_config import A2aConfig
from sublet.supervisor.agent_config import AgentConfig


def spoken_names(rules: Iterable[Rule], agents: Sequence[AgentConfig]) -> Spoken:
    """Return what tells which rule, or which agent of ``agent.json``, names a peer."""
    named = NamedPeers(rules)
    remote = {one.provider.peer: one.id for one in agents if isinstance(one.provider, A2aConfig) and one.provider.peer}

    def spoken(name: str) -> str | None:
        if (rule := named.rule_about(name)) is not None:
            return f"the rule {rule}"
        return f"the agent {remote[name]}" if name in remote else None

    return spoken
