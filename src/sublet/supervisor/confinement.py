"""What really holds an agent on this machine: the one place from which ACCEPT, ``status`` and docs are told.

A name is enforced only where the restriction that it stands for is in force: ``cwd_only`` that nothing else can be
seen, ``allow_network`` that there is no network, ``allow_exec`` that no program can be started. So a delegator that
requires a name gets the restriction, whatever an agent's file says.

Weak: capabilities that the owner lets an agent call, and the model of a ``model`` agent, are reached by the daemon and
not from the sandbox; they are the owner's policy, and are not counted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sublet.supervisor.a2a_config import A2aConfig
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.limits import enforced_limits
from sublet.supervisor.model_config import ModelConfig
from sublet.supervisor.provider_config import SuperConfig


@dataclass(frozen=True, slots=True)
class Confinement:
    """How an agent is held.

    Args:
        cwd_only: whether it sees its lease and the system's programs alone.
        allow_network: whether anything of it reaches a network.
        allow_exec: whether it can start programs.
        limits: names of the limits that it is held to.
    """

    cwd_only: bool
    allow_network: bool
    allow_exec: bool
    limits: frozenset[str]

    @property
    def enforced(self) -> frozenset[str]:
        """The names of all restrictions and limits that are in force."""
        restrictions = {
            "cwd_only": self.cwd_only,
            "allow_network": not self.allow_network,
            "allow_exec": not self.allow_exec,
        }
        return self.limits | {name for name, in_force in restrictions.items() if in_force}


def confinement(agent: AgentConfig, offered: Iterable[AgentConfig], *, sandboxed: bool) -> Confinement:
    """Return how an agent is held.

    Args:
        agent: whose.
        offered: all agents of the file, among which a super agent has its workers.
        sandboxed: whether what agents start is confined on this machine.
    """
    return _of(agent, {one.id: one for one in offered}, sandboxed)


def _of(agent: AgentConfig, offered: Mapping[str, AgentConfig], sandboxed: bool) -> Confinement:
    provider = agent.provider
    if isinstance(provider, SuperConfig):
        # Whoever made the file has checked that workers are there and do not work for themselves.
        workers = [_of(offered[step.agent], offered, sandboxed) for step in provider.workers if step.agent in offered]
        return Confinement(
            cwd_only=bool(workers) and all(one.cwd_only for one in workers),
            allow_network=not workers or any(one.allow_network for one in workers),
            allow_exec=not workers or any(one.allow_exec for one in workers),
            limits=frozenset.intersection(*(one.limits for one in workers)) if workers else frozenset(),
        )
    limits = enforced_limits(agent.limits)
    if isinstance(provider, A2aConfig):
        # It works elsewhere, as its owner there wants it; only what it answers is bounded here.
        return Confinement(cwd_only=False, allow_network=True, allow_exec=True, limits=limits & {"output"})
    calls_servers = any(server.url is not None for server in agent.mcp_servers.values())
    return Confinement(
        cwd_only=sandboxed and not agent.sandbox.readable,
        allow_network=not sandboxed or agent.allow_network or calls_servers,
        # Of a model without the tool for it nothing is started, whether there is a sandbox or not.
        allow_exec=agent.sandbox.allow_exec or not isinstance(provider, ModelConfig),
        limits=limits,
    )
