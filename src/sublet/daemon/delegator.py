"""The delegator's service: takes requests, keeps the running delegations, answers about all of them (AWCP 6)."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import anyio

from sublet.daemon.delegation_run import DelegationRun
from sublet.daemon.journal import Journal
from sublet.daemon.lent_access import DelegatorTools
from sublet.daemon.models import MAX_WAIT_SECONDS, AuditReport, CreateDelegation, DelegationView
from sublet.daemon.ports import PeerAddress
from sublet.daemon.records import DelegationRecord
from sublet.daemon.times import rfc3339
from sublet.policy.model import Subject
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.ids import new_delegation_id
from sublet.protocol.lifecycle import DelegationEvent
from sublet.protocol.messages import MAX_DESCRIPTION_CHARS
from sublet.protocol.text import clean_line
from sublet.workspace.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules

MAX_RUNNING = 256
"""Delegations that may be under way at once on this daemon."""
STOP_SECONDS = 3.5
"""How long a stop of the daemon waits for running delegations to be settled."""


class Delegator:
    """Runs delegations; ``serve`` must run for anything to happen."""

    def __init__(self, tools: DelegatorTools) -> None:
        self._tools = tools
        self._journal: Journal = tools.journal
        self._runs: dict[str, DelegationRun] = {}
        self._creating = asyncio.Lock()
        self._group: asyncio.TaskGroup | None = None

    async def serve(self) -> None:
        """Drive delegations until cancelled; then end those under way, truthfully, and cut their access."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await anyio.sleep_forever()
            finally:
                self._group = None
                with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_SECONDS):
                    await self._stop_all()

    async def create(
        self, request: CreateDelegation, caller: Subject, peer: PeerAddress, agent: str | None, ttl_seconds: int
    ) -> DelegationView:
        """Record a delegation and let it run.

        Args:
            request: what is asked for; its directory exists and policy has allowed it.
            caller: who asks.
            peer: whom it goes to.
            agent: which of the peer's agents, None for its default.
            ttl_seconds: what policy allows of the time asked for.

        Raises:
            SubletError: ``CONFLICT`` for an idempotency key that was used for something else, ``UNAVAILABLE`` when
                too much is under way or the daemon is stopping.
        """
        async with self._creating:
            if self._group is None or len(self._runs) >= MAX_RUNNING:
                raise SubletError(
                    LocalCode.UNAVAILABLE, "no further delegation can be started now", "Try again in a moment."
                )
            who = f"{caller.kind}:{caller.name}"
            if request.idempotency_key is not None:
                known = await self._journal.find_delegation(who, request.idempotency_key)
                if known is not None:
                    return await self._again(known, request)
            record = _new_record(request, who, peer.name, agent, ttl_seconds)
            await self._journal.save_delegation(record, EventKind.DELEGATION_STATE, {"state": str(record.state)})
            rules = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, request.reveal)
            run = self._runs[record.id] = DelegationRun(record, peer, rules, self._tools, self._group.create_task)
            self._group.create_task(self._drive(run))
            return run.view()

    async def view(self, delegation_id: str) -> DelegationView:
        """Return the delegation as it is now.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        cursor = await self._journal.newest_event(delegation_id)
        if (run := self._runs.get(delegation_id)) is not None:
            return run.view().model_copy(update={"cursor": cursor})
        return (await self._load(delegation_id)).view(time.time(), cursor=cursor)

    async def wait(self, delegation_id: str, timeout: float) -> DelegationView:
        """Wait at most ``timeout`` seconds until the delegation is over and settled, then return the view."""
        if (run := self._runs.get(delegation_id)) is not None:
            with anyio.move_on_after(min(timeout, MAX_WAIT_SECONDS)):
                await run.finished.wait()
        return await self.view(delegation_id)

    async def list(self, *, limit: int, active: bool) -> list[DelegationView]:
        """Return the newest delegations first."""
        records = await self._journal.list_delegations(limit=limit, active=active)
        now = time.time()
        return [run.view() if (run := self._runs.get(r.id)) is not None else r.view(now) for r in records]

    async def audit(self, delegation_id: str, *, patch: bool) -> AuditReport:
        """Return what the delegation changed.

        Raises:
            SubletError: ``NOT_FOUND``, also while there is no report yet.
        """
        run = self._runs.get(delegation_id)
        record = run.record if run is not None else await self._load(delegation_id)
        if record.audit is None or record.snapshot is None or record.result_snapshot is None:
            why = "It ended before any access was given." if record.settled else "It is made when access is cut."
            raise SubletError(LocalCode.NOT_FOUND, f"{record.id} is {record.state} and has no audit", why)
        if not patch:
            return record.audit
        made = await asyncio.to_thread(
            self._tools.auditor.patch, Path(record.workspace), record.snapshot, record.result_snapshot
        )
        return record.audit.model_copy(update={"patch": made.text, "patch_truncated": made.truncated})

    async def cancel(self, delegation_id: str, why: str) -> DelegationView:
        """End the delegation now. Cancelling what is over changes nothing and says so by its state."""
        if (run := self._runs.get(delegation_id)) is not None:
            await run.stop(DelegationEvent.CANCEL, SubletError(ErrorCode.CANCELLED, why, "Delegate again if needed."))
        return await self.view(delegation_id)

    async def _again(self, known: DelegationRecord, request: CreateDelegation) -> DelegationView:
        """Answer a retry with what the first try made."""
        if known.request != request:
            raise SubletError(
                LocalCode.CONFLICT,
                f"the idempotency key was used for another request, {known.id}",
                "Use a new key for a new request.",
            )
        return await self.view(known.id)

    async def _drive(self, run: DelegationRun) -> None:
        try:
            await run.drive()
        finally:
            self._runs.pop(run.record.id, None)

    async def _load(self, delegation_id: str) -> DelegationRecord:
        record = await self._journal.load_delegation(delegation_id)
        if record is None:
            raise SubletError(
                LocalCode.NOT_FOUND, f"there is no delegation {clean_line(delegation_id, 80)}", "See: sublet ls --all"
            )
        return record

    async def _stop_all(self) -> None:
        error = SubletError(
            ErrorCode.CANCELLED, "the daemon was stopped while the delegation ran", "Start it and delegate again."
        )
        runs = list(self._runs.values())
        for run in runs:
            await run.stop(DelegationEvent.CANCEL, error)
        for run in runs:
            await run.finished.wait()


def _new_record(
    request: CreateDelegation, caller: str, peer: str, agent: str | None, ttl_seconds: int
) -> DelegationRecord:
    now = rfc3339()
    first_line = request.prompt.strip().splitlines()[0] if request.prompt.strip() else ""
    return DelegationRecord(
        id=new_delegation_id(),
        caller=caller,
        request=request,
        peer=peer,
        agent=agent,
        workspace=os.path.realpath(request.workspace_dir),
        description=clean_line(request.description or first_line, MAX_DESCRIPTION_CHARS - 40),
        access_mode=request.access_mode,
        ttl_seconds=ttl_seconds,
        created_at=now,
        updated_at=now,
    )
