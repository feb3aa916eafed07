"""What a node is told now of our agents."""

from __future__ import annotations

from collections.abc import Iterable

from sublet.federation.ports import OwnAgent
from sublet.protocol.federation.addresses import NodeName
from sublet.protocol.federation.events import AgentRegistered, AgentUnregistered, Heartbeat, StatusUpdate


class News:
    """``all`` our agents and what they are ``at``, and of these what it does not know yet."""

    def __init__(
        self,
        all: dict[str, OwnAgent],
        at: dict[str, tuple[str, str | None]],
        gone: list[AgentUnregistered],
        registered: list[AgentRegistered],
        statuses: list[StatusUpdate],
    ) -> None:
        self.all = all
        self.at = at
        self.gone = gone
        self.registered = registered
        self.statuses = statuses

    def __bool__(self) -> bool:
        """Tell whether there is anything new."""
        return bool(self.gone or self.registered or self.statuses)


def registrations(agents: Iterable[OwnAgent], node: NodeName, now: str) -> list[AgentRegistered]:
    """Return what tells that agents of a node are there, at a time (RFC 3339)."""
    return [
        AgentRegistered(
            agent_id=one.agent_id,
            node_id=node,
            runtime_type=one.runtime_type,
            capabilities=list(one.capabilities),
            timestamp=now,
        )
        for one in agents
    ]


def heartbeats(news: News, node: NodeName, now: str) -> list[Heartbeat]:
    """Return what tells that all agents of a node are there still, at a time (RFC 3339)."""
    return [Heartbeat(agent_id=one, node_id=node, status=said[0], timestamp=now) for one, said in news.at.items()]
