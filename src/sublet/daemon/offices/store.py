"""Which offices there are, and the digests of their tokens: shown once, kept as hashes, revoked at once."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from sublet.daemon.storage.event_log import Recorder
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.torn_rows import RowsOf
from sublet.daemon.times import rfc3339
from sublet.offices.seats import Seat
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.ids import PEER_NAME
from sublet.protocol.near import did_you_mean
from sublet.protocol.offices.names import Role
from sublet.protocol.patterns import Pattern
from sublet.protocol.times import unix_seconds

PREFIX: Final = "sblt_"
"""As of other tokens: scanners for secrets and our log know one when they see it."""
MAX_OFFICES: Final = 256
MAX_TOKENS: Final = 256
"""Of one office."""
_SECRET_BYTES: Final = 32
_MAX_SECRET_CHARS: Final = 256
MEMBER_NAME = Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Office:
    """An office. ``id`` is a random UUID, which nobody guesses; ``name`` is for people and rules."""

    id: str
    name: str
    created_at: str


@dataclass(frozen=True, slots=True)
class _Token:
    hash: bytes
    office_id: str
    role: Role
    name: str


class OfficeStore:
    """All offices and tokens. A token is found by its hash in memory, so that time tells nothing of others."""

    def __init__(
        self, journal: Journal, offices: Sequence[Office], tokens: Sequence[_Token], clock: Callable[[], float]
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._offices = {one.id: one for one in offices}
        self._tokens = {token.hash: token for token in tokens if token.office_id in self._offices}
        self._opened = anyio.Event()
        if self._offices:
            self._opened.set()

    @classmethod
    async def load(cls, journal: Journal, clock: Callable[[], float] = time.time) -> OfficeStore:
        """Return what the store knows."""
        offices = await journal.rows.sound(RowsOf("offices", "id"), _office)
        return cls(journal, offices, await journal.rows.sound(RowsOf("office_tokens", "hash"), _token), clock)

    async def wait(self) -> None:
        """Return once there is an office."""
        await self._opened.wait()

    def list(self) -> Sequence[Office]:
        """Return the offices by name."""
        return sorted(self._offices.values(), key=lambda one: one.name)

    def get(self, named: str) -> Office:
        """Return an office by its name or id.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        for one in self._offices.values():
            if named in (one.name, one.id):
                return one
        near = did_you_mean(named, (one.name for one in self._offices.values()))
        raise SubletError(LocalCode.NOT_FOUND, f"there is no office of that name{near}", "See `sublet office list`.")

    def seats(self, office: Office) -> Sequence[Seat]:
        """Return who may join an office, by name."""
        found = [self._seat(token) for token in self._tokens.values() if token.office_id == office.id]
        return sorted(found, key=lambda seat: seat.name)

    def find(self, secret: str) -> Seat | None:
        """``FindsSeats.find``."""
        if len(secret) > _MAX_SECRET_CHARS:
            return None
        token = self._tokens.get(_hash(secret))
        return None if token is None or token.office_id not in self._offices else self._seat(token)

    async def create(self, name: str) -> Office:
        """Open an office.

        Raises:
            SubletError: ``INVALID_ARGUMENT``, ``CONFLICT`` for a name in use, ``UNAVAILABLE`` for too many.
        """
        if not PEER_NAME.match(name):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                "that can't be the name of an office",
                "Use lower-case letters, digits, dot, dash and underscore, at most 63 of them.",
            )
        office = Office(str(uuid.uuid4()), name, rfc3339(self._clock()))

        def work(connection: sqlite3.Connection, events: Recorder) -> None:
            if connection.execute("SELECT 1 FROM offices WHERE name = ?", (name,)).fetchone() is not None:
                raise SubletError(LocalCode.CONFLICT, f"there is an office named {name}", "Choose another name.")
            if connection.execute("SELECT count(*) FROM offices").fetchone()[0] >= MAX_OFFICES:
                raise SubletError(LocalCode.UNAVAILABLE, f"there are {MAX_OFFICES} offices", "Close some of them.")
            connection.execute(
                "INSERT INTO offices (id, name, created_at) VALUES (?, ?, ?)", (office.id, name, office.created_at)
            )
            events.add(EventKind.OFFICE_CREATED, None, {"office_id": office.id, "office": name})

        # Shielded, so that store and memory never part ways.
        with anyio.CancelScope(shield=True):
            await self._journal.events.transact(work)
            self._offices[office.id] = office
            self._opened.set()
        return office

    async def create_token(
        self, office: Office, role: Role, name: str, *, replace: bool
    ) -> tuple[str, Seat, Seat | None]:
        """Make a token; return its secret, which nobody sees again, its seat, and the seat whose token it replaces.

        Raises:
            SubletError: ``INVALID_ARGUMENT``, ``CONFLICT`` for a name that has a token and may not lose it,
                ``NOT_FOUND`` where the office was closed meanwhile, ``UNAVAILABLE`` for too many.
        """
        if not MEMBER_NAME.match(name):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                "that can't be the name of a member",
                "Use letters, digits, dot, dash and underscore, at most 64 of them.",
            )
        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        token = _Token(_hash(secret), office.id, role, name)

        def work(connection: sqlite3.Connection, _: Recorder) -> bytes | None:
            if connection.execute("SELECT 1 FROM offices WHERE id = ?", (office.id,)).fetchone() is None:
                raise _closed()
            there = connection.execute(
                "SELECT hash FROM office_tokens WHERE office_id = ? AND name = ?", (office.id, name)
            ).fetchone()
            if there is not None and not replace:
                raise SubletError(
                    LocalCode.CONFLICT,
                    f"{name} has a token for this office",
                    "Choose another name, or make the old token useless with --replace.",
                )
            connection.execute("DELETE FROM office_tokens WHERE office_id = ? AND name = ?", (office.id, name))
            held = connection.execute("SELECT count(*) FROM office_tokens WHERE office_id = ?", (office.id,)).fetchone()
            if held[0] >= MAX_TOKENS:
                raise SubletError(
                    LocalCode.UNAVAILABLE,
                    f"the office has {MAX_TOKENS} tokens",
                    "Send somebody away: sublet office kick.",
                )
            connection.execute(
                "INSERT INTO office_tokens (hash, office_id, role, name, created_at) VALUES (?, ?, ?, ?, ?)",
                (token.hash, office.id, str(role), name, rfc3339(self._clock())),
            )
            return None if there is None else bytes(there["hash"])

        with anyio.CancelScope(shield=True):
            old = await self._journal.events.transact(work)
            if office.id not in self._offices:  # closed meanwhile; what was written goes with it
                raise _closed()
            replaced = self._tokens.pop(old, None) if old is not None else None
            self._tokens[token.hash] = token
        return secret, self._seat(token), None if replaced is None else self._seat(replaced)

    async def revoke(self, office: Office, name: str) -> Seat:
        """Make the token of a name useless at once.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        token = next((t for t in self._tokens.values() if (t.office_id, t.name) == (office.id, name)), None)
        if token is None:
            near = did_you_mean(name, (seat.name for seat in self.seats(office)))
            raise SubletError(
                LocalCode.NOT_FOUND, f"nobody in this office has that name{near}", "See `sublet office list`."
            )
        seat = self._seat(token)

        def work(connection: sqlite3.Connection, events: Recorder) -> None:
            connection.execute("DELETE FROM office_tokens WHERE hash = ?", (token.hash,))
            told = {"office_id": office.id, "office": office.name, "member": name, "role": str(token.role)}
            events.add(EventKind.OFFICE_KICKED, None, {**told})

        # Out of memory first: it opens nothing any more while the disk is being written.
        del self._tokens[token.hash]
        with anyio.CancelScope(shield=True):
            try:
                await self._journal.events.transact(work)
            except BaseException:
                self._tokens[token.hash] = token
                raise
        return seat

    async def close(self, office: Office) -> Sequence[Seat]:
        """Forget an office with all its tokens, and return their seats.

        Raises:
            SubletError: ``NOT_FOUND`` where it is closed already.
        """
        if self._offices.pop(office.id, None) is None:
            raise _closed()
        held = {hash: token for hash, token in self._tokens.items() if token.office_id == office.id}
        seats = [self._seat_in(office, token) for token in held.values()]
        for hash in held:
            del self._tokens[hash]

        def work(connection: sqlite3.Connection, events: Recorder) -> None:
            connection.execute("DELETE FROM office_tokens WHERE office_id = ?", (office.id,))
            connection.execute("DELETE FROM offices WHERE id = ?", (office.id,))
            events.add(EventKind.OFFICE_CLOSED, None, {"office_id": office.id, "office": office.name})

        with anyio.CancelScope(shield=True):
            try:
                await self._journal.events.transact(work)
            except BaseException:
                self._offices[office.id] = office
                self._tokens |= held
                raise
        return seats

    def _seat(self, token: _Token) -> Seat:
        return self._seat_in(self._offices[token.office_id], token)

    def _seat_in(self, office: Office, token: _Token) -> Seat:
        return Seat(office.id, office.name, token.role, token.name, token.hash.hex())


def _closed() -> SubletError:
    return SubletError(LocalCode.NOT_FOUND, "there is no office of that name any more", "See `sublet office list`.")


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _office(row: sqlite3.Row) -> Office:
    if not PEER_NAME.match(row["name"]) or str(uuid.UUID(row["id"])) != row["id"]:
        raise ValueError("its name or id is none")
    unix_seconds(row["created_at"])
    return Office(row["id"], row["name"], row["created_at"])


def _token(row: sqlite3.Row) -> _Token:
    if not MEMBER_NAME.match(row["name"]) or len(row["hash"]) != 32:
        raise ValueError("its name or hash is none")
    return _Token(bytes(row["hash"]), row["office_id"], Role(row["role"]), row["name"])
