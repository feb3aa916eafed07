"""What replay offers faces. Every method asks policy before it does anything."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.replay_models import ReplayRequest, ReplayView
from sublet.policy.model import Subject


class ReplayApi(Protocol):
    """The operations around recorded sessions."""

    async def replay_session(self, session_id: str, request: ReplayRequest, caller: Subject) -> ReplayView:
        """Decide again what was decided in a session, and compare; no agent is asked and nothing is changed.

        Raises:
            SubletError: ``NOT_FOUND`` where nothing is recorded of it; ``INVALID_ARGUMENT`` for more than
                ``MAX_REPLAYED_EVENTS``.
        """
