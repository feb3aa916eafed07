"""Calls that wait for a person: asked once per exact call, bounded, and over on time (SuperAgent 6.2, DESIGN 7)."""

from __future__ import annotations

import asyncio
import builtins
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal, cast, get_args

import anyio

from sublet.daemon.approvals.grant_store import GrantStore
from sublet.daemon.storage.event_log import Recorder
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.torn_rows import TORN, RowsOf, a_moment, a_moment_or_none, an_object
from sublet.policy.grants import Call, Grant
from sublet.policy.names import plain
from sublet.policy.recorded import DECIDED, Record
from sublet.policy.tool_names import tool_plain
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKeys, EventKind
from sublet.protocol.text import clean_line

MAX_PENDING_PER_AGENT: Final = 16
MAX_KEPT: Final = 2_000
"""Approvals that are kept, those that are over included."""
QUESTION_SECONDS: Final = 900.0
"""How long a person has, where the lease does not end before."""

State = Literal["pending", "approved", "denied", "expired", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Approval:
    """One question to a person.

    Args:
        id: names it.
        state: what became of it; one whose time is over reads as ``expired``.
        agent: id of the agent that asks.
        tool: canonical name of the tool.
        digest: SHA-256 of ``arguments``.
        scope: the delegation or session for which it is asked.
        arguments: all of them, as canonical JSON.
        context: what else a person is shown: peer, delegation, chain, rule, reason.
        created_at: Unix seconds.
        expires_at: Unix seconds.
        ends_at: Unix seconds at which the lease ends, and with it what is approved for it.
        decided_at: Unix seconds.
        decided_by: who has decided.
    """

    id: str
    state: State
    agent: str
    tool: str
    digest: str
    scope: str
    arguments: str
    context: Mapping[str, JsonValue]
    created_at: float
    expires_at: float
    ends_at: float
    decided_at: float | None = None
    decided_by: str | None = None


@dataclass(frozen=True, slots=True)
class QuestionOrigin:
    """For which run a question is asked: its delegation, if any, the keys of its events, and what policy decided."""

    delegation_id: str | None
    keys: EventKeys
    record: Record


class _Waiting:
    def __init__(self) -> None:
        self.decided = asyncio.Event()
        self.count = 0


class Questions:
    """Asks, waits, and takes what a person decides.

    Args:
        journal: keeps them.
        grants: takes what an approval makes.
        clock: tells Unix seconds.
    """

    def __init__(self, journal: Journal, grants: GrantStore, clock: Callable[[], float] = time.time) -> None:
        self._journal = journal
        self._grants = grants
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}
        self._kept: dict[str, None] = {}

    def waits(self, approval_id: str) -> bool:
        """Tell whether somebody still waits for it in this process, or will call again."""
        return approval_id in self._waiting or approval_id in self._kept

    async def ask(
        self,
        call: Call,
        arguments: str,
        context: Mapping[str, JsonValue],
        asking: QuestionOrigin,
        *,
        until: float,
        kept: bool = False,
    ) -> Approval:
        """Return the open question about exactly this call, asked now if nobody has; journals ``approval_required``.

        Args:
            call: what the agent wants to call.
            arguments: canonical JSON.
            context: what else a person is shown.
            asking: for which run.
            until: Unix seconds at which the lease ends.
            kept: whether it stays open while nobody waits, since who asks will call again, or ``withdraw``.

        Raises:
            SubletError: ``UNAVAILABLE`` where the agent has ``MAX_PENDING_PER_AGENT`` open questions.
        """
        agent, tool, now = plain(call.agent), tool_plain(call.tool), self._clock()
        record = asking.record

        def work(connection: sqlite3.Connection, events: Recorder) -> Approval:
            connection.execute(
                "UPDATE approvals SET state = 'expired' WHERE state = 'pending' AND expires_at <= ?", (now,)
            )
            row = connection.execute(
                "SELECT * FROM approvals WHERE agent = ? AND tool = ? AND digest = ? AND scope = ? "
                "AND state = 'pending'",
                (agent, tool, call.digest, call.scope),
            ).fetchone()
            if row is not None:
                try:
                    return _approval(row, now)
                except TORN:  # nobody can decide it
                    connection.execute("UPDATE approvals SET state = 'withdrawn' WHERE id = ?", (row["id"],))
            open_now = connection.execute(
                "SELECT count(*) FROM approvals WHERE agent = ? AND state = 'pending'", (agent,)
            ).fetchone()[0]
            if open_now >= MAX_PENDING_PER_AGENT:
                raise SubletError(
                    LocalCode.UNAVAILABLE,
                    f"{open_now} calls of {agent} wait for a person already",
                    "Wait for those, or do without.",
                )
            connection.execute(
                "DELETE FROM approvals WHERE state != 'pending' AND id IN "
                "(SELECT id FROM approvals ORDER BY created_at DESC LIMIT -1 OFFSET ?)",
                (MAX_KEPT,),
            )
            asked = Approval(
                id=f"apr_{secrets.token_hex(8)}",
                state="pending",
                agent=agent,
                tool=tool,
                digest=call.digest,
                scope=call.scope,
                arguments=arguments,
                context=context,
                created_at=now,
                expires_at=min(until, now + QUESTION_SECONDS),
                ends_at=until,
            )
            data = {**context, "approvalId": asked.id, "tool": tool, "digest": call.digest, DECIDED: record.data()}
            event = events.add(
                EventKind.APPROVAL_REQUIRED, asking.delegation_id, data, keys=asking.keys, keeps=record.documents
            )
            connection.execute(
                """INSERT INTO approvals (id, state, agent, tool, digest, scope, arguments, context, created_at,
                    expires_at, ends_at, event) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
                (
                    asked.id, asked.state, asked.agent, asked.tool, asked.digest, asked.scope, asked.arguments,
                    json.dumps(dict(asked.context)), asked.created_at, asked.expires_at, asked.ends_at, event.seq,
                ),
            )  # fmt: skip
            return asked

        asked = await self._journal.events.transact(work)
        if kept:
            self._kept[asked.id] = None
            while len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return asked

    async def wait(self, approval: Approval) -> Approval:
        """Return the approval once it is decided or its time is over.

        Who stops waiting takes the question back, unless it was asked as ``kept``.
        """
        waiting = self._waiting.setdefault(approval.id, _Waiting())
        waiting.count += 1
        try:
            # Looked at after registering, so that no decision falls between.
            found = await self.find(approval.id)
            with anyio.move_on_after(max(0.0, found.expires_at - self._clock())):
                while found.state == "pending":
                    await waiting.decided.wait()
                    found = await self.find(approval.id)
        finally:
            waiting.count -= 1
            if waiting.count == 0:
                self._waiting.pop(approval.id, None)
                if approval.id not in self._kept:
                    with anyio.CancelScope(shield=True):
                        await self._close(approval.id)
        return await self.find(approval.id)

    async def list(self, *, limit: int = 100, pending: bool = True) -> builtins.list[Approval]:
        """Return approvals, the newest first; with ``pending`` those only that a person can still decide.

        Those go by turns: the oldest of each agent, then the next of each, so that none hides those of another.
        """
        now = self._clock()
        turns = "*, row_number() OVER (PARTITION BY agent ORDER BY created_at, id) AS turn"
        return await self._journal.rows.sound(
            RowsOf("approvals"),
            lambda row: _approval(row, now),
            "WHERE state = 'pending' AND expires_at > ? ORDER BY turn, created_at, id LIMIT ?"
            if pending
            else "WHERE ? IS NOT NULL ORDER BY created_at DESC, id LIMIT ?",
            (now, limit),
            columns=turns if pending else "*",
        )

    async def set_torn_aside(self) -> None:
        """Set rows aside that are no approvals; for the start."""
        await self.list(limit=2 * MAX_KEPT, pending=False)

    async def find(self, approval_id: str) -> Approval:
        """Return one approval.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        return await self._journal.events.read(lambda connection: _required(connection, approval_id, self._clock()))

    async def approve(self, approval: Approval, grant: Grant, by: str) -> Approval:
        """Put ``grant`` in force for the approval, both or neither, and let the agent go on.

        Raises:
            SubletError: ``CONFLICT`` where it is not open any more.
        """
        return await self._decide(approval.id, "approved", by, grant)

    async def deny(self, approval_id: str, by: str) -> Approval:
        """Refuse the call, and let the agent go on without it.

        Raises:
            SubletError: ``NOT_FOUND``; ``CONFLICT`` where it is not open any more.
        """
        return await self._decide(approval_id, "denied", by, None)

    async def withdraw(self, approval_id: str, denied_by: str | None = None) -> None:
        """Close a question that was kept, as denied where ``denied_by`` names who said no; what is over stays so."""
        self._kept.pop(approval_id, None)
        if denied_by is None:
            await self._close(approval_id)
            return
        with suppress(SubletError):  # it was decided meanwhile
            await self.deny(approval_id, denied_by)

    async def _decide(self, approval_id: str, state: State, by: str, grant: Grant | None) -> Approval:
        def work(connection: sqlite3.Connection, events: Recorder) -> Approval:
            now = self._clock()
            approval = _required(connection, approval_id, now)
            if approval.state != "pending":
                raise SubletError(
                    LocalCode.CONFLICT, f"{approval.id} is {approval.state} already", "See: sublet approvals list --all"
                )
            connection.execute(
                "UPDATE approvals SET state = ?, decided_at = ?, decided_by = ? WHERE id = ?",
                (state, now, by, approval_id),
            )
            keys = events.keys_after(_event(connection, approval_id)).model_copy(update={"agent_id": approval.agent})
            data: dict[str, JsonValue] = {"approvalId": approval_id, "tool": approval.tool, "decision": state, "by": by}
            decided = events.add(EventKind.APPROVAL_DECIDED, None, data, keys=keys)
            if grant is not None:
                after = keys.model_copy(update={"causation_id": decided.seq})
                self._grants.insert(connection, events, grant, after)
            return replace(approval, state=state, decided_at=now, decided_by=by)

        # Shielded, so that what is decided is also told to whoever waits.
        with anyio.CancelScope(shield=True):
            decided = await self._journal.events.transact(work)
            if (waiting := self._waiting.get(approval_id)) is not None:
                waiting.decided.set()
            self._kept.pop(approval_id, None)
        return decided

    async def _close(self, approval_id: str) -> None:
        """Close a question for which nobody waits any more."""
        now = self._clock()

        def work(connection: sqlite3.Connection, _: Recorder) -> None:
            if approval_id in self._waiting:
                return  # the same call was asked for again meanwhile
            connection.execute(
                "UPDATE approvals SET state = CASE WHEN expires_at <= ? THEN 'expired' ELSE 'withdrawn' END "
                "WHERE id = ? AND state = 'pending'",
                (now, approval_id),
            )

        await self._journal.events.transact(work)


def _event(connection: sqlite3.Connection, approval_id: str) -> int:
    """Return the number of the event that asked."""
    return int(connection.execute("SELECT event FROM approvals WHERE id = ?", (approval_id,)).fetchone()["event"])


def _required(connection: sqlite3.Connection, approval_id: str, now: float) -> Approval:
    row = connection.execute("SELECT * FROM approvals WHERE id = ?", (approval_id,)).fetchone()
    try:
        if row is not None:
            return _approval(row, now)
    except TORN:
        pass  # who lists approvals, as every start does, sets it aside
    raise SubletError(
        LocalCode.NOT_FOUND, f"there is no approval {clean_line(approval_id, 60)}", "See: sublet approvals list"
    )


def _approval(row: sqlite3.Row, now: float) -> Approval:
    """Return the approval of a row.

    Raises:
        ValueError: it is none.
    """
    if row["state"] not in get_args(State):
        raise ValueError("its state is none")
    json.loads(row["arguments"])
    over = row["state"] == "pending" and row["expires_at"] <= now
    return Approval(
        id=row["id"],
        state="expired" if over else row["state"],
        agent=row["agent"],
        tool=row["tool"],
        digest=row["digest"],
        scope=row["scope"],
        arguments=row["arguments"],
        context=cast("dict[str, JsonValue]", an_object(row["context"])),
        created_at=a_moment(row["created_at"]),
        expires_at=a_moment(row["expires_at"]),
        ends_at=a_moment(row["ends_at"]),
        decided_at=a_moment_or_none(row["decided_at"]),
        decided_by=row["decided_by"],
    )
