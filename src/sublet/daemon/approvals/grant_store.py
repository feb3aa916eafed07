"""Grants in the store: consumed in one transaction with the journal's word that the tool is called (SuperAgent 6.2)."""

from __future__ import annotations

import builtins
import json
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

import structlog

from sublet.daemon.approvals.moments import moment
from sublet.daemon.storage.event_log import Recorder
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.torn_rows import TORN, RowsOf, a_moment, a_moment_or_none, an_object
from sublet.policy.grants import Call, Grant, Moment, check_terms, consumed, refusal
from sublet.policy.names import plain
from sublet.policy.tool_names import tool_plain
from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import Document
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventKeys, EventKind
from sublet.protocol.text import clean_line

MAX_GRANTS: Final = 2_000
"""Those that are usable at one time."""
KEEP_SECONDS: Final = 30 * 24 * 3600.0
"""How long a grant that is over is shown."""
MAX_KEPT_AT_ALL: Final = 1_000_000
"""More than there are: each start looks at all."""
UNKNOWN_OUTCOME: Final = "unknown: the daemon ended between the call and its end"

_USABLE: Final = """revoked_at IS NULL AND remaining > 0 AND expires_at > :at
    AND CASE WHEN boot != '' AND boot = :boot THEN issued_up + expires_at - issued_at > :up ELSE issued_at <= :at END"""
"""As ``Grant.state`` says it."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a grant: what it was, and the journal's ``tool_call`` event."""

    id: int
    grant: Grant
    event: Event


@dataclass(frozen=True, slots=True)
class Called:
    """The ``tool_call`` event that a use journals: whose delegation's, its data and keys, and what it refers to."""

    call_id: str
    delegation_id: str | None
    data: Mapping[str, JsonValue]
    keys: EventKeys
    keeps: Sequence[Document] = ()


class GrantStore:
    """All grants of this daemon. Whether one is over is computed whenever it is looked at."""

    def __init__(self, journal: Journal, clock: Callable[[], Moment] = moment) -> None:
        self._journal = journal
        self._clock = clock

    def now(self) -> Moment:
        """Return the time by which grants are looked at."""
        return self._clock()

    def make(
        self,
        *,
        agent: str,
        tool: str,
        digest: str | None,
        issued_by: str,
        ttl_seconds: int,
        max_uses: int,
        when: Mapping[str, str] | None = None,
        scope: str = "",
        ends_at: float | None = None,
        approval_id: str | None = None,
    ) -> Grant:
        """Return a new grant, which nobody can use before ``insert``.

        Args:
            agent: id of the agent.
            tool: name of the tool; the canonical one is kept.
            digest: of the arguments, or None for all that satisfy ``when``.
            issued_by: who issues it.
            ttl_seconds: how long it lasts from now.
            max_uses: how often it can be used.
            when: conditions of a widened grant.
            scope: where alone it can be used.
            ends_at: Unix seconds at which it is over at the latest: the end of the lease.
            approval_id: what it comes from.

        Raises:
            SubletError: ``INVALID_ARGUMENT`` for terms that no grant may have.
        """
        check_terms(ttl_seconds, max_uses, when or {})
        now = self._clock()
        until = now.at + ttl_seconds
        return Grant(
            id=f"grt_{secrets.token_hex(12)}",
            agent=plain(agent),
            tool=tool_plain(tool),
            digest=digest,
            issued_by=issued_by,
            issued=now,
            expires_at=until if ends_at is None else min(until, ends_at),
            max_uses=max_uses,
            remaining=max_uses,
            when=dict(when or {}),
            scope=scope,
            approval_id=approval_id,
        )

    async def issue(self, grant: Grant) -> Grant:
        """Put ``grant`` in force.

        Raises:
            SubletError: ``UNAVAILABLE`` where ``MAX_GRANTS`` are usable already.
        """
        await self._journal.events.transact(lambda connection, events: self.insert(connection, events, grant))
        return grant

    def insert(
        self, connection: sqlite3.Connection, events: Recorder, grant: Grant, keys: EventKeys | None = None
    ) -> None:
        """Put ``grant`` in force as part of a transaction; as ``issue``. ``keys`` are of the run that it is for."""
        now = self._clock()
        connection.execute("DELETE FROM grants WHERE expires_at < ?", (now.at - KEEP_SECONDS,))
        usable = f"SELECT count(*) FROM grants WHERE {_USABLE}"  # noqa: S608 - constants
        if connection.execute(usable, _named(now)).fetchone()[0] >= MAX_GRANTS:
            raise SubletError(LocalCode.UNAVAILABLE, f"{MAX_GRANTS} grants are in force", "Revoke some of them.")
        connection.execute(
            """INSERT INTO grants (id, agent, tool, digest, conditions, scope, issued_by, issued_at, boot,
                issued_up, expires_at, max_uses, remaining, approval_id)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                grant.id, grant.agent, grant.tool, grant.digest, json.dumps(dict(grant.when)), grant.scope,
                grant.issued_by, grant.issued.at, grant.issued.boot, grant.issued.up, grant.expires_at, grant.max_uses,
                grant.remaining, grant.approval_id,
            ),
        )  # fmt: skip
        events.add(
            EventKind.GRANT_ISSUED,
            None,
            {
                "grantId": grant.id,
                "tool": grant.tool,
                "digest": grant.digest,
                "when": dict(grant.when),
                "issuedBy": grant.issued_by,
                "maxUses": grant.max_uses,
                "approvalId": grant.approval_id,
            },
            keys=(keys or EventKeys()).model_copy(update={"agent_id": grant.agent}),
        )

    async def find(self, call: Call) -> Grant | None:
        """Return a grant that would allow ``call`` now, the narrowest first; nothing is used up."""
        now = self._clock()
        return await self._journal.events.read(lambda connection: _usable(connection, call, now))

    async def consume(self, call: Call, called: Called) -> Use | None:
        """Use up one use for ``call`` and journal that the tool is called, both or neither; None where none is left.

        The one writer of the store takes transactions one after the other, so no use is ever spent twice.
        """

        def work(connection: sqlite3.Connection, events: Recorder) -> Use | None:
            now = self._clock()
            found = _usable(connection, call, now)
            if found is None:
                return None
            grant = consumed(found)
            connection.execute("UPDATE grants SET remaining = ? WHERE id = ?", (grant.remaining, grant.id))
            data = {**called.data, "grantId": grant.id, "issuedBy": grant.issued_by}
            event = events.add(EventKind.TOOL_CALL, called.delegation_id, data, keys=called.keys, keeps=called.keeps)
            use = connection.execute(
                "INSERT INTO grant_uses (grant_id, call_id, event, delegation_id, used_at) VALUES (?, ?, ?, ?, ?)",
                (grant.id, called.call_id, event.seq, called.delegation_id, now.at),
            ).lastrowid
            assert use is not None
            return Use(use, grant, event)

        return await self._journal.events.transact(work)

    async def ended(self, use: int, outcome: Literal["done", "failed"]) -> None:
        """Write down what came of a use."""
        await self._journal.events.transact(
            lambda connection, _: (
                connection.execute("UPDATE grant_uses SET outcome = ? WHERE id = ?", (outcome, use)).rowcount
            )
        )

    async def settle(self) -> int:
        """After a start, say of every use whose end was never told that nobody knows it; return how many.

        Grants that are none are set aside.
        """
        await self.list(limit=MAX_KEPT_AT_ALL)

        def work(connection: sqlite3.Connection, events: Recorder) -> int:
            rows = connection.execute(
                "SELECT u.*, g.agent, g.tool FROM grant_uses AS u JOIN grants AS g ON g.id = u.grant_id "
                "WHERE u.outcome IS NULL"
            ).fetchall()
            for row in rows:
                data: dict[str, JsonValue] = {
                    "tool": row["tool"],
                    "callId": row["call_id"],
                    "grantId": row["grant_id"],
                    "error": UNKNOWN_OUTCOME,
                }
                keys = events.keys_after(row["event"]).model_copy(update={"agent_id": row["agent"]})
                events.add(EventKind.TOOL_ERROR, row["delegation_id"], data, keys=keys)
            connection.execute("UPDATE grant_uses SET outcome = ? WHERE outcome IS NULL", (UNKNOWN_OUTCOME,))
            return len(rows)

        count = await self._journal.events.transact(work)
        if count:
            log.warning("calls by grants were cut off; whether they were done is unknown", calls=count)
        return count

    async def list(self, *, limit: int = 100, usable: bool = False) -> builtins.list[Grant]:
        """Return grants, the newest first; with ``usable`` those only that are worth something."""
        only = f"WHERE {_USABLE}" if usable else ""
        values = {**_named(self._clock()), "most": limit}
        rest = f"{only} ORDER BY issued_at DESC, id LIMIT :most"
        return await self._journal.rows.sound(RowsOf("grants"), _grant, rest, values)

    async def outcomes(self, grant_id: str) -> builtins.list[str]:
        """Return what came of each use, the oldest first; ``running`` where it is not known yet."""

        def work(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute("SELECT outcome FROM grant_uses WHERE grant_id = ? ORDER BY id", (grant_id,))
            return [row["outcome"] or "running" for row in rows]

        return await self._journal.events.read(work)

    async def revoke(self, grant_id: str, by: str) -> Grant:
        """Take a grant back; twice is no error. What is running goes on.

        Raises:
            SubletError: ``NOT_FOUND``.
        """

        def work(connection: sqlite3.Connection, events: Recorder) -> Grant:
            row = connection.execute("SELECT * FROM grants WHERE id = ?", (grant_id,)).fetchone()
            if row is None:
                raise SubletError(
                    LocalCode.NOT_FOUND, f"there is no grant {clean_line(grant_id, 60)}", "See: sublet grants list"
                )
            try:
                grant = _grant(row)
            except TORN:
                raise SubletError(
                    LocalCode.NOT_FOUND, f"the grant {clean_line(grant_id, 60)} is torn", "See: sublet grants list"
                ) from None
            if grant.revoked_at is not None:
                return grant
            now = self._clock().at
            connection.execute("UPDATE grants SET revoked_at = ? WHERE id = ?", (now, grant_id))
            keys = EventKeys(agent_id=grant.agent)
            events.add(EventKind.GRANT_REVOKED, None, {"grantId": grant_id, "by": by}, keys=keys)
            return replace(grant, revoked_at=now)

        return await self._journal.events.transact(work)

    def void_all(self, connection: sqlite3.Connection, events: Recorder, by: str) -> int:
        """Take every grant back as part of a transaction, and return how many could still have been used."""
        count = connection.execute(
            f"UPDATE grants SET revoked_at = :at WHERE {_USABLE}",  # noqa: S608 - constants
            _named(self._clock()),
        ).rowcount
        if count:
            events.add(EventKind.GRANT_REVOKED, None, {"grants": count, "by": by})
        return count


def _named(now: Moment) -> dict[str, str | float]:
    return {"at": now.at, "boot": now.boot, "up": now.up}


def _usable(connection: sqlite3.Connection, call: Call, now: Moment) -> Grant | None:
    rows = connection.execute(
        f"""SELECT * FROM grants WHERE agent = :agent AND tool = :tool AND {_USABLE}
            ORDER BY digest IS NULL, expires_at, id""",  # noqa: S608 - constants
        {**_named(now), "agent": plain(call.agent), "tool": tool_plain(call.tool)},
    )
    for row in rows:
        with suppress(*TORN):  # who lists grants, as every start does, sets such a one aside
            if refusal(grant := _grant(row), call, now) is None:
                return grant
    return None


def _grant(row: sqlite3.Row) -> Grant:
    """Return the grant of a row.

    Raises:
        ValueError: it is none.
    """
    when = an_object(row["conditions"])
    if not all(isinstance(glob, str) for glob in when.values()):
        raise ValueError("a condition is no text")
    return Grant(
        id=row["id"],
        agent=row["agent"],
        tool=row["tool"],
        digest=row["digest"],
        issued_by=row["issued_by"],
        issued=Moment(a_moment(row["issued_at"]), row["boot"], a_moment(row["issued_up"])),
        expires_at=a_moment(row["expires_at"]),
        max_uses=row["max_uses"],
        remaining=row["remaining"],
        when=cast("dict[str, str]", when),
        scope=row["scope"],
        revoked_at=a_moment_or_none(row["revoked_at"]),
        approval_id=row["approval_id"],
    )
