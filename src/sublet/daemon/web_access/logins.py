"""One-time login links of the web page. They live in memory: a restart voids them."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from sublet.protocol.errors import LocalCode, SubletError

MAX_LINKS = 8
"""Open at one time; one more voids the oldest."""
MAX_WRONG_SECRETS = 5
"""Wrong secrets for a link that void it."""
UNKNOWN_PER_MINUTE = 30
"""Links that do not exist may be tried so often by everybody together; nobody can keep the owner out by trying."""
_ID_BYTES = 9
_SECRET_BYTES = 32
_MINUTE = 60.0


@dataclass
class _Link:
    secret_hash: bytes
    expires_at: float
    wrong: int = 0


class WebLogins:
    """Implements ``WebLoginCheck``.

    Args:
        clock: tells seconds, and never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._links: dict[str, _Link] = {}
        self._tries = float(UNKNOWN_PER_MINUTE)
        self._counted_at = clock()

    def make(self, ttl_seconds: int) -> str:
        """Return the secret of a new link, which is good for ``ttl_seconds`` or one login."""
        self._forget()
        while len(self._links) >= MAX_LINKS:
            del self._links[next(iter(self._links))]
        link_id, secret = secrets.token_urlsafe(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        self._links[link_id] = _Link(_hashed(secret), self._clock() + ttl_seconds)
        return f"{link_id}.{secret}"

    def redeem(self, text: str) -> None:
        """``WebLoginCheck.redeem``."""
        self._forget()
        link_id, _, secret = text.partition(".")
        link = self._links.get(link_id)
        if link is None:
            self._count_unknown()
            raise _invalid()
        if not hmac.compare_digest(_hashed(secret), link.secret_hash):
            link.wrong += 1
            if link.wrong >= MAX_WRONG_SECRETS:
                del self._links[link_id]
            raise _invalid()
        del self._links[link_id]

    def _forget(self) -> None:
        now = self._clock()
        self._links = {link_id: link for link_id, link in self._links.items() if now < link.expires_at}

    def _count_unknown(self) -> None:
        now = self._clock()
        gained = (now - self._counted_at) * UNKNOWN_PER_MINUTE / _MINUTE
        self._tries = min(float(UNKNOWN_PER_MINUTE), self._tries + gained)
        self._counted_at = now
        if self._tries < 1:
            raise SubletError(
                LocalCode.UNAVAILABLE, "too many links that do not exist were tried", "Wait a minute, then: sublet web"
            )
        self._tries -= 1


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _invalid() -> SubletError:
    return SubletError(
        LocalCode.TOKEN_INVALID, "this login link was used already, or its time is over", "Make a new one: sublet web"
    )
