"""Which agents are offered now, and what does their work; both can be read anew while the daemon runs (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.job import Provider


class Offer:
    """The agents that are offered now, replaced all at once; nobody until they are read for the first time."""

    def __init__(self) -> None:
        self._agents: tuple[AgentConfig, ...] = ()
        # An agent that is offered no more keeps its provider: work of it may have been accepted.
        self._providers: dict[str, Provider] = {}

    @property
    def agents(self) -> tuple[AgentConfig, ...]:
        """Those offered now, the default one first."""
        return self._agents

    def now(self) -> tuple[AgentConfig, ...]:
        """Return ``agents``, for whoever asks again and again."""
        return self._agents

    def ids(self) -> list[str]:
        """Return the ids of those offered now."""
        return [agent.id for agent in self._agents]

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

    def replace(self, agents: tuple[AgentConfig, ...], providers: Mapping[str, Provider]) -> None:
        """Offer ``agents`` from now on, each with its provider; what runs goes on as it began."""
        self._agents = agents
        self._providers |= providers


class Offering:
    """Fills an ``Offer`` from ``agent.json``.

    Args:
        offer: is filled.
        load: reads the file.
        provide: makes the provider of one agent.
    """

    def __init__(
        self, offer: Offer, load: Callable[[], Sequence[AgentConfig]], provide: Callable[[AgentConfig], Provider]
    ) -> None:
        self.offer = offer
        self._load = load
        self._provide = provide

    def read(self) -> tuple[AgentConfig, ...]:
        """Return what the file says now, without using it. Blocks: call it in a thread.

        Raises:
            SubletError: ``INVALID_ARGUMENT``.
        """
        return tuple(self._load())

    def use(self, agents: tuple[AgentConfig, ...]) -> None:
        """Offer ``agents`` from now on.

        Raises:
            SubletError: ``DEP_MISSING`` where the package of a provider is not here; nothing has changed then.
        """
        self.offer.replace(agents, {agent.id: self._provide(agent) for agent in agents})
