"""A supervisor for the command line's tests, which plays back what it is given."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from sublet.daemon.api.supervisor_models import (
    AskAnswer,
    AskBegun,
    AskOutput,
    AskRequest,
    LocalAgents,
    LocalAgentView,
    MessageView,
    SessionDetail,
    SessionView,
    Status,
)
from sublet.daemon.control.supervisor_client import SupervisorClient
from sublet.protocol.errors import LocalCode, SubletError

AT = "2026-01-01T00:00:00Z"


def a_session(session_id: str = "ses_1", **more: object) -> SessionView:
    """Return a session."""
    return SessionView.model_validate(
        {
            "fingerSessionId": session_id,
            "title": "a title",
            "status": "active",
            "owner": "human",
            "createdAt": AT,
            "updatedAt": AT,
            **more,
        }
    )


@dataclass
class FakeSupervisor(SupervisorClient):
    """Yields ``updates`` for what is asked, then fails where there is a ``failure``."""

    updates: list[AskBegun | AskOutput | AskAnswer] = field(default_factory=list)
    failure: SubletError | None = None
    sessions: list[SessionView] = field(default_factory=list)
    said: list[MessageView] = field(default_factory=list)
    agents: list[LocalAgentView] = field(default_factory=list)
    asked: list[AskRequest] = field(default_factory=list)
    changes: list[tuple[str, str]] = field(default_factory=list)

    async def ask(self, request: AskRequest) -> AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]:
        self.asked.append(request)
        for update in self.updates:
            yield update
        if self.failure is not None:
            raise self.failure

    async def list_agents(self) -> LocalAgents:
        return LocalAgents(agents=self.agents)

    async def list_sessions(self, *, limit: int = 50) -> list[SessionView]:
        return self.sessions[:limit]

    async def get_session(self, session_id: str, *, messages: int = 20) -> SessionDetail:
        self.changes.append((session_id, f"show {messages}"))
        if not self.sessions:
            raise SubletError(LocalCode.NOT_FOUND, "there is no session", "")
        return SessionDetail(**self.sessions[0].model_dump(), messages=self.said)

    async def create_session(self, title: str) -> SessionView:
        self.changes.append(("new", title))
        return a_session(title=title)

    async def change_session(self, session_id: str, status: Status) -> SessionView:
        self.changes.append((session_id, status))
        return a_session(session_id, status=status)

    async def delete_session(self, session_id: str) -> SessionView:
        self.changes.append((session_id, "delete"))
        return a_session(session_id)
