"""What a node is told now of our agents."""

from __future__ import annotations

from sublet.federation.ports import OwnAgent
from sublet.protocol.federation.events import AgentRegistered, AgentUnregistered, StatusUpdate


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
