"""Sessions that ``sublet prune`` and retention may remove: those that are over, or that nobody used for long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sublet.daemon.storage.prune_stores import MAX_CANDIDATES, Candidate
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.times import unix_seconds
from sublet.supervisor.sessions.control import SessionControl
from sublet.supervisor.sessions.store import SessionStore


class KeptSessions:
    """Implements ``PruneStore``. A session that is active or paused counts as pending: somebody may go on with it."""

    name = "sessions"

    def __init__(self, sessions: SessionControl, store: SessionStore) -> None:
        self._sessions = sessions
        self._store = store

    async def candidates(self) -> list[Candidate]:
        """``PruneStore.candidates``."""
        found: list[Candidate] = []
        for session_id in (await asyncio.to_thread(self._store.ids))[:MAX_CANDIDATES]:
            if self._sessions.busy(session_id):
                continue
            try:
                session = await self._sessions.get(session_id)
            except SubletError as error:
                if error.code is not LocalCode.NOT_FOUND:
                    raise
                continue
            found.append(
                Candidate(
                    session_id,
                    unix_seconds(session.updated_at),
                    await asyncio.to_thread(self._store.size, session_id),
                    # A conversation of a client's ends when the client says no more; it never completes one.
                    pending=session.status in ("active", "paused") and session.owner == "human",
                    shown=session.title or session_id,
                )
            )
        return found

    async def remove(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """``PruneStore.remove``."""
        gone: list[Candidate] = []
        for candidate in chosen:
            try:
                await self._sessions.delete(candidate.id)
            except SubletError as error:
                if error.code not in (LocalCode.NOT_FOUND, LocalCode.CONFLICT):
                    raise
                if error.code is LocalCode.CONFLICT:
                    continue
            gone.append(candidate)
        return gone
