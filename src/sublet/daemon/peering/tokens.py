"""Bearer tokens for plain A2A clients: shown once, kept as hashes."""

from __future__ import annotations

import builtins
import hashlib
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio

from sublet.daemon.api.tokens import TokenView
from sublet.daemon.storage.event_log import Recorder
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.torn_rows import RowsOf, a_moment_or_none
from sublet.daemon.times import rfc3339
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import PEER_NAME
from sublet.protocol.near import did_you_mean
from sublet.protocol.times import unix_seconds

PREFIX = "sblt_"
"""Lets secret scanners and our own log filter know a token when they see one."""
MAX_TOKENS = 256
MAX_TTL_SECONDS = 5 * 366 * 24 * 3600
MAX_SECRET_CHARS = 256
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class _Token:
    name: str
    hash: bytes
    created_at: str
    expires_at: float | None

    def view(self, secret: str | None = None) -> TokenView:
        expires = rfc3339(self.expires_at) if self.expires_at is not None else None
        return TokenView(name=self.name, created_at=self.created_at, expires_at=expires, token=secret)


class TokenStore:
    """All tokens. Lookups are answered from memory by hash, so they tell nothing by the time they take."""

    def __init__(self, journal: Journal, tokens: Sequence[_Token], clock: Callable[[], float]) -> None:
        self._journal = journal
        self._clock = clock
        self._by_hash = {token.hash: token for token in tokens}

    @classmethod
    async def load(cls, journal: Journal, clock: Callable[[], float] = time.time) -> TokenStore:
        """Return the tokens that the store knows."""
        return cls(journal, await journal.rows.sound(RowsOf("tokens", "name"), _token), clock)

    async def create(self, name: str, ttl_seconds: int | None) -> TokenView:
        """Make a token; only this answer holds its secret. An expired token gives its name away.

        Args:
            name: unique, in the form of a peer's name.
            ttl_seconds: how long it is valid; None for until it is revoked.

        Raises:
            SubletError: ``INVALID_ARGUMENT``, ``CONFLICT`` for a name in use, ``UNAVAILABLE`` for too many.
        """
        if not PEER_NAME.match(name):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                "that can't be the name of a token",
                "Use lower-case letters, digits, dot, dash and underscore, at most 63 of them.",
            )
        if ttl_seconds is not None and not 1 <= ttl_seconds <= MAX_TTL_SECONDS:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"a token can't be valid for {ttl_seconds} s",
                f"Choose between 1 and {MAX_TTL_SECONDS} seconds, or none for until it is revoked.",
            )
        now = self._clock()
        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        token = _Token(name, _hash(secret), rfc3339(now), None if ttl_seconds is None else now + ttl_seconds)

        def work(connection: sqlite3.Connection, _: Recorder) -> None:
            connection.execute("DELETE FROM tokens WHERE expires_at <= ?", (now,))
            if connection.execute("SELECT 1 FROM tokens WHERE name = ?", (name,)).fetchone() is not None:
                raise SubletError(
                    LocalCode.CONFLICT, f"there is a token named {name}", "Revoke it first, or choose another name."
                )
            if connection.execute("SELECT count(*) FROM tokens").fetchone()[0] >= MAX_TOKENS:
                raise SubletError(LocalCode.UNAVAILABLE, f"there are {MAX_TOKENS} tokens", "Revoke some of them.")
            connection.execute(
                "INSERT INTO tokens (name, hash, created_at, expires_at) VALUES (?, ?, ?, ?)",
                (token.name, token.hash, token.created_at, token.expires_at),
            )

        # Shielded, so that store and memory never part ways.
        with anyio.CancelScope(shield=True):
            await self._journal.events.transact(work)
            self._by_hash = {h: t for h, t in self._by_hash.items() if not self._over(t)} | {token.hash: token}
        return token.view(secret)

    def list(self) -> builtins.list[TokenView]:
        """Return all tokens by name, expired ones included, without their secrets."""
        return [token.view() for token in sorted(self._by_hash.values(), key=lambda token: token.name)]

    async def revoke(self, name: str) -> TokenView:
        """Make a token useless at once.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        token = next((token for token in self._by_hash.values() if token.name == name), None)
        if token is None:
            near = did_you_mean(name, (token.name for token in self._by_hash.values()))
            raise SubletError(LocalCode.NOT_FOUND, f"there is no token of that name{near}", "See `sublet token list`.")
        # Out of memory first: it opens nothing any more while the disk is being written.
        del self._by_hash[token.hash]
        with anyio.CancelScope(shield=True):
            try:
                await self._journal.events.transact(
                    lambda connection, _: connection.execute("DELETE FROM tokens WHERE name = ?", (name,)).rowcount
                )
            except BaseException:
                self._by_hash[token.hash] = token
                raise
        return token.view()

    def find(self, secret: str) -> str | None:
        """Return the name of the token with that secret, or None where there is none or it is over."""
        if len(secret) > MAX_SECRET_CHARS:
            return None
        token = self._by_hash.get(_hash(secret))
        return token.name if token is not None and not self._over(token) else None

    def _over(self, token: _Token) -> bool:
        return token.expires_at is not None and token.expires_at <= self._clock()


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _token(row: sqlite3.Row) -> _Token:
    if not PEER_NAME.match(row["name"]):
        raise ValueError("its name is none")
    unix_seconds(row["created_at"])
    return _Token(row["name"], row["hash"], row["created_at"], a_moment_or_none(row["expires_at"]))
