"""Which agents are offered now, and what does their work; both can be read anew while the daemon runs (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sublet.policy.agent_rules import AgentTools, agent_rules
from sublet.policy.rules import Rule
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.model import Provider


class Offer:
    """The agents of ``agent.json``, replaced all at once.

    Args:
        load: reads the file.
        provide: makes the provider of one agent.

    Raises:
        SubletError: ``INVALID_ARGUMENT``, of ``load``.
    """

    def __init__(self, load: Callable[[], Sequence[AgentConfig]], provide: Callable[[AgentConfig], Provider]) -> None:
        self._load = load
        self._provide = provide
        self._agents: tuple[AgentConfig, ...] = ()
        # An agent that is offered no more keeps its provider: work of it may have been accepted.
        self._providers: dict[str, Provider] = {}
        self.use(self.read())

    @property
    def agents(self) -> tuple[AgentConfig, ...]:
        """Those offered now, the default one first."""
        return self._agents

    def role_of(self, agent_id: str) -> str:
        """Return the role of an agent that is offered now; nothing where it is not."""
        return next((agent.role for agent in self._agents if agent.id == agent_id), "")

    def provider(self, agent_id: str) -> Provider:
        """Return what does the work of an agent that is or was offered."""
        return self._providers[agent_id]

    def capabilities_of(self, agent_id: str) -> tuple[str, ...] | None:
        """Return the capabilities that an agent is told of: those of its ``governance``, or None for all of them."""
        config = next((one for one in self._agents if one.id == agent_id), None)
        told = [one for one in config.governance.values() if one.inject_capabilities] if config else []
        return (told[0].capability_ids or None) if told else ()

    def read(self) -> tuple[AgentConfig, ...]:
        """Return what the file says now, without using it. Blocks: call it in a thread.

        Raises:
            SubletError: ``INVALID_ARGUMENT``.
        """
        return tuple(self._load())

    def use(self, agents: tuple[AgentConfig, ...]) -> None:
        """Offer ``agents`` from now on; what runs goes on as it began."""
        made = {agent.id: self._provide(agent) for agent in agents}
        self._agents = agents
        self._providers |= made


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
