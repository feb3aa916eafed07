"""Typed client of the supervisor's area: ``SupervisorApi`` as its owner calls it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from pydantic import ValidationError

from sublet.daemon.api.supervisor_models import (
    AskAnswer,
    AskBegun,
    AskOutput,
    AskRequest,
    LocalAgents,
    SessionChange,
    SessionDetail,
    SessionView,
    Status,
)
from sublet.daemon.control.transport import Transport
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import SESSION_ID
from sublet.protocol.text import clean_line

_KINDS: Mapping[str, type[AskBegun | AskOutput | AskAnswer]] = {
    "begun": AskBegun,
    "output": AskOutput,
    "answer": AskAnswer,
}


class SupervisorClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def ask(self, request: AskRequest) -> AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]:
        """Have the supervisor see to ``request``; the last that is yielded is what came of it."""
        async with aclosing(self._transport.stream("POST", "/v1/ask", body=request)) as events:
            async for kind, data in events:
                yield _read(kind, data)

    async def list_agents(self) -> LocalAgents:
        """Return the agents of this daemon."""
        return await self._transport.fetch(LocalAgents, "GET", "/v1/agents")

    async def list_sessions(self, *, limit: int = 50) -> list[SessionView]:
        """Return the sessions that were used last."""
        return await self._transport.fetch_many(SessionView, "/v1/sessions", {"limit": limit})

    async def get_session(self, session_id: str, *, messages: int = 20) -> SessionDetail:
        """Return a session with its bindings and newest messages."""
        return await self._transport.fetch(SessionDetail, "GET", _path(session_id), {"messages": messages})

    async def create_session(self, title: str) -> SessionView:
        """Begin a session."""
        return await self._transport.fetch(SessionView, "POST", "/v1/sessions", body={"title": title})

    async def change_session(self, session_id: str, status: Status) -> SessionView:
        """Pause, complete or resume a session."""
        change = SessionChange.model_validate({"status": status})
        return await self._transport.fetch(SessionView, "POST", _path(session_id), body=change)

    async def delete_session(self, session_id: str) -> SessionView:
        """Forget a session."""
        return await self._transport.fetch(SessionView, "DELETE", _path(session_id))


def _path(session_id: str) -> str:
    """Return the path of a session.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what is no id, and would mean something else in a path.
    """
    if not SESSION_ID.match(session_id):
        what = f"{clean_line(session_id, 80)!r} is no id of a session"
        raise SubletError(LocalCode.INVALID_ARGUMENT, what, "See: sublet sessions list")
    return f"/v1/sessions/{session_id}"


def _read(kind: str, data: str) -> AskBegun | AskOutput | AskAnswer:
    try:
        return _KINDS[kind].model_validate_json(data)
    except (KeyError, ValidationError):
        raise SubletError(
            LocalCode.INTERNAL, "the daemon's answer is not understood", "Restart it with this version of sublet."
        ) from None
