"""What the supervisor offers faces: asking, sessions and agents. Every method asks policy before it does anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from sublet.daemon.api.supervisor_models import (
    AskAnswer,
    AskBegun,
    AskOutput,
    AskRequest,
    LocalAgents,
    SessionChange,
    SessionDetail,
    SessionView,
)
from sublet.policy.model import Subject


class SupervisorApi(Protocol):
    """The operations around sessions."""

    def ask(self, request: AskRequest, caller: Subject) -> AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]:
        """Have the supervisor see to ``request``: yield its ids, then what is said, then what came of it.

        Closing or cancelling the generator ends the work before it returns.
        """

    async def list_agents(self, caller: Subject) -> LocalAgents:
        """Return the agents of this daemon, and which of them the caller may not have."""

    async def list_sessions(self, caller: Subject, *, limit: int = 50) -> list[SessionView]:
        """Return the sessions that were used last."""

    async def get_session(self, session_id: str, caller: Subject, *, messages: int = 20) -> SessionDetail:
        """Return a session with its bindings and newest messages."""

    async def create_session(self, title: str, caller: Subject) -> SessionView:
        """Begin a session."""

    async def change_session(self, session_id: str, change: SessionChange, caller: Subject) -> SessionView:
        """Pause, complete or resume a session."""

    async def delete_session(self, session_id: str, caller: Subject) -> SessionView:
        """Forget a session with its messages and bindings; what its providers keep is theirs."""
