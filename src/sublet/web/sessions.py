"""Who is logged in to the web page. Each session has two secrets, and a request needs both.

The cookie alone would not do: browsers send it to every port of 127.0.0.1, so also to a server of somebody else on this
machine. The key is what the page keeps for its own origin, port included, and sends in a header.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
from anyio import Lock, to_thread
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from sublet.disk.durable import write_whole
from sublet.disk.plain_file import read_plain

MAX_SESSIONS = 16
"""One more ends the oldest."""
SESSION_SECONDS = 12 * 3600
MAX_FILE_BYTES = 64 << 10
_SECRET_BYTES = 32

log = structlog.get_logger(__name__)


class WebSession(BaseModel):
    """One login, as it is remembered: hashes of its secrets, and when it ends."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    cookie_hash: str
    key_hash: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class NewSession:
    """The secrets of a login, which only its browser has."""

    cookie: str
    key: str
    seconds: int


_SESSIONS: TypeAdapter[list[WebSession]] = TypeAdapter(list[WebSession])


class Sessions:
    """All logins. They outlive a restart of the daemon, so that an open page goes on by itself.

    Args:
        path: where their hashes are kept.
        clock: tells Unix seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._sessions = _read(path)
        self._writing = Lock()

    async def begin(self) -> NewSession:
        """Return a new session."""
        cookie, key = secrets.token_urlsafe(_SECRET_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        kept = [one for one in self._sessions if self._holds(one)][-(MAX_SESSIONS - 1) :]
        made = WebSession(
            cookie_hash=_hashed(cookie), key_hash=_hashed(key), expires_at=self._clock() + SESSION_SECONDS
        )
        await self._keep([*kept, made])
        return NewSession(cookie, key, SESSION_SECONDS)

    def find(self, cookie: str, key: str) -> WebSession | None:
        """Return the session that has both secrets, if it has not ended."""
        cookie_hash, key_hash = _hashed(cookie), _hashed(key)
        for one in self._sessions:
            if hmac.compare_digest(one.cookie_hash, cookie_hash) and hmac.compare_digest(one.key_hash, key_hash):
                return one if self._holds(one) else None
        return None

    def goes_on(self, session: WebSession) -> bool:
        """Tell whether it has not ended."""
        return session in self._sessions and self._holds(session)

    async def end(self, session: WebSession) -> None:
        """Log out."""
        await self._keep([one for one in self._sessions if one != session])

    def _holds(self, session: WebSession) -> bool:
        # One from the future of a clock that was set back since is none.
        return self._clock() < session.expires_at <= self._clock() + SESSION_SECONDS

    async def _keep(self, sessions: list[WebSession]) -> None:
        # In force at once, whatever the disk does.
        self._sessions = sessions
        try:
            async with self._writing:
                await to_thread.run_sync(write_whole, self._path, _SESSIONS.dump_json(self._sessions))
        except OSError as error:
            log.warning("logins could not be remembered, and end with this process", reason=error.strerror)


def _read(path: Path) -> list[WebSession]:
    try:
        return _SESSIONS.validate_json(read_plain(path, MAX_FILE_BYTES, follow=False))[-MAX_SESSIONS:]
    except (OSError, ValidationError):
        return []


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
