"""A supervisor for the command line's tests, which plays back what it is given."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.sessions import (
    ASK,
    CHANGE_SESSION,
    CREATE_SESSION,
    DELETE_SESSION,
    GET_SESSION,
    LIST_AGENTS,
    LIST_SESSIONS,
    AskAnswer,
    AskBegun,
    AskOutput,
    AskRequest,
    ListSessions,
    LocalAgents,
    LocalAgentView,
    MessageView,
    NewSession,
    OneSession,
    SessionChange,
    SessionDetail,
    SessionView,
    ShowSession,
)
from sublet.protocol.errors import LocalCode, SubletError
from support.answering import answers, tells

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
class FakeSupervisor:
    """Yields ``updates`` for what is asked, then fails where there is a ``failure``."""

    updates: list[AskBegun | AskOutput | AskAnswer] = field(default_factory=list)
    failure: SubletError | None = None
    sessions: list[SessionView] = field(default_factory=list)
    said: list[MessageView] = field(default_factory=list)
    agents: list[LocalAgentView] = field(default_factory=list)
    asked: list[AskRequest] = field(default_factory=list)
    changes: list[tuple[str, str]] = field(default_factory=list)

    @tells(ASK)
    async def ask(self, request: AskRequest) -> AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]:
        self.asked.append(request)
        for update in self.updates:
            yield update
        if self.failure is not None:
            raise self.failure

    @answers(LIST_AGENTS)
    async def list_agents(self, request: Nothing) -> LocalAgents:
        return LocalAgents(agents=self.agents)

    @answers(LIST_SESSIONS)
    async def list_sessions(self, request: ListSessions) -> list[SessionView]:
        return self.sessions[: request.limit]

    @answers(GET_SESSION)
    async def get_session(self, request: ShowSession) -> SessionDetail:
        self.changes.append((request.session_id, f"show {request.messages}"))
        if not self.sessions:
            raise SubletError(LocalCode.NOT_FOUND, "there is no session", "")
        return SessionDetail(**self.sessions[0].model_dump(), messages=self.said)

    @answers(CREATE_SESSION)
    async def create_session(self, request: NewSession) -> SessionView:
        self.changes.append(("new", request.title))
        return a_session(title=request.title)

    @answers(CHANGE_SESSION)
    async def change_session(self, request: SessionChange) -> SessionView:
        self.changes.append((request.session_id, request.status))
        return a_session(request.session_id, status=request.status)

    @answers(DELETE_SESSION)
    async def delete_session(self, request: OneSession) -> SessionView:
        self.changes.append((request.session_id, "delete"))
        return a_session(request.session_id)
