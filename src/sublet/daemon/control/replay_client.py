"""Typed client of replay's area: ``ReplayApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.replay_models import ReplayView
from sublet.daemon.control.transport import Transport
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import SESSION_ID


class ReplayClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def replay_session(self, session_id: str, *, current: bool = False) -> ReplayView:
        """Decide again what was decided in a session."""
        if not SESSION_ID.fullmatch(session_id):
            raise SubletError(LocalCode.INVALID_ARGUMENT, "that is no id of a session", "See: sublet sessions list")
        return await self._transport.fetch(ReplayView, "GET", f"/v1/sessions/{session_id}/replay", {"current": current})
