"""The delegator's service: takes requests, keeps the running delegations, answers about all of them (AWCP 6)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVarTuple

import anyio
import structlog

from sublet.daemon.api.audit_models import AuditReport
from sublet.daemon.api.base import MAX_PAGE, MAX_WAIT_SECONDS
from sublet.daemon.api.delegation_views import DelegationView, LeaseQuota
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.lending.agreement import new_record
from sublet.daemon.lending.audits import patch_of
from sublet.daemon.lending.declared import DeclaredSandboxes
from sublet.daemon.lending.delegation_run import DelegationRun
from sublet.daemon.lending.late_news import FindPeer, LateNews
from sublet.daemon.lending.lent_access import DelegatorTools
from sublet.daemon.lending.recovery import end_interrupted
from sublet.daemon.lending.steering import Approve, RestOf
from sublet.daemon.ports.peer_link import PeerAddress
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.lent_directories import lent_directories
from sublet.daemon.storage.panel_parts import PanelPart
from sublet.daemon.storage.records import DelegationRecord, ResourceRecord
from sublet.daemon.tasks.background import in_background
from sublet.daemon.tasks.own_tasks import OwnTasks
from sublet.disk.set_aside import SetAside
from sublet.policy.decision import Subject
from sublet.protocol.chain import Chain
from sublet.protocol.delegation.events import CancelCame, ReadAsOver
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DELEGATION_TABLE, is_terminal
from sublet.protocol.messages import FollowUp
from sublet.stop_time import within
from sublet.workspace.serving.lease_memory import recall

MAX_RUNNING = 256
"""Delegations that may be under way at once on this daemon."""
END_SECONDS = 10.0
"""How long a caller waits until a cancel is journalled and access is cut."""
STOP_SECONDS = 3.5
"""How long a stop of the daemon waits for running delegations to be settled."""

log = structlog.get_logger(__name__)

Arguments = TypeVarTuple("Arguments")


class Delegator:
    """Runs delegations; ``serve`` must run for anything to happen.

    Args:
        tools: what every delegation works with.
        find_peer: returns how to call the peer of a delegation now, or None where it is not paired any more.
        settled: told of each that is over and settled.
    """

    def __init__(
        self,
        tools: DelegatorTools,
        find_peer: FindPeer,
        settled: Callable[[DelegationView], None] = lambda _: None,
    ) -> None:
        self._tools = tools
        self._find_peer = find_peer
        self._settled = settled
        self.declared = DeclaredSandboxes(tools.journal)
        """How peers have held their agents."""
        self._late_news = LateNews(tools.journal, tools.link, find_peer)
        self._journal: Journal = tools.journal
        self._runs: dict[str, DelegationRun] = {}
        self._tasks = OwnTasks()
        self._taken_over = anyio.Event()

    async def serve(self) -> None:
        """Drive delegations until cancelled; then end those under way, truthfully, and cut their access."""
        await self._tasks.run(begin=self._take_over, stop=self._stop_all)

    async def create(
        self,
        request: CreateDelegation,
        caller: Subject,
        resources: Sequence[ResourceRecord],
        peer: PeerAddress,
        agent: str | None,
        ttl_seconds: int,
        chain: Chain,
        panel: PanelPart | None = None,
    ) -> DelegationView:
        """Record a delegation and let it run.

        Args:
            request: what is asked for; policy has allowed it.
            caller: who asks.
            resources: the directories, by real paths for which policy has allowed it; the request's own are not looked
                at. The first is the one to work in.
            peer: whom it goes to.
            agent: which of the peer's agents, None for its default.
            ttl_seconds: what policy allows of the time asked for.
            chain: who called until here, where an agent asks; checked already.
            panel: which member of which panel it is.

        Raises:
            SubletError: ``CONFLICT`` for an idempotency key that was used for something else, ``POLICY_DENIED`` for a
                quota above that of policy, ``UNAVAILABLE`` when too much is under way or the daemon is stopping,
                ``PEER_UNKNOWN`` where the peer was removed since it was looked up.
        """
        who = f"{caller.kind}:{caller.name}"
        known = await self._known(request, who)
        if known is not None:
            return known
        if not self._tasks.open or len(self._runs) >= MAX_RUNNING:
            raise SubletError(
                LocalCode.UNAVAILABLE, "no further delegation can be started now", "Try again in a moment."
            )
        await self._taken_over.wait()
        record = new_record(request, who, resources, peer, agent, ttl_seconds, self._quota(request), chain, panel)
        # A person may have been waited for since the peer was looked up; nothing is awaited until it can be ended.
        if (now := self._find_peer(record)) is None or now.name != peer.name:
            raise SubletError(
                LocalCode.PEER_UNKNOWN, f"{peer.name} was removed or renamed meanwhile", "See `sublet peers list`."
            )
        lent, noted = lent_directories(record), self.declared.note
        run = self._runs[record.id] = DelegationRun(record, peer, lent, self._tools, noted)
        # From here on it goes on in its own task, whether or not the caller waits for the answer.
        self._tasks.start("a delegation", self._drive, run)
        await run.recorded.wait()
        if run.refused is None:
            return self._look(run)
        # The same request twice at once: the other one was first.
        known = await self._known(request, who)
        if known is None:
            raise run.refused
        return known

    async def view(self, delegation_id: str) -> DelegationView:
        """Return the delegation as it is now.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        cursor = await self._journal.events.newest_event(delegation_id)
        if (run := self._runs.get(delegation_id)) is not None:
            return self._look(run).model_copy(update={"cursor": cursor})
        return (await self._journal.require_delegation(delegation_id)).view(time.time(), cursor=cursor)

    async def wait(self, delegation_id: str, timeout: float) -> DelegationView:
        """Wait at most ``timeout`` seconds until the delegation is over and settled, then return the view."""
        with anyio.move_on_after(min(timeout, MAX_WAIT_SECONDS)):
            await self._taken_over.wait()
            if (run := self._runs.get(delegation_id)) is not None:
                await run.finished.wait()
        return await self.view(delegation_id)

    async def list(self, *, limit: int, active: bool, before: str | None = None) -> list[DelegationView]:
        """Return the newest delegations first; with ``active`` only those that are not over, by the clock too.

        Their audits are brief: ``AuditReport.brief``.

        Raises:
            SubletError: ``NOT_FOUND`` where there is no delegation ``before``.
        """
        limit = max(1, min(limit, MAX_PAGE))
        records = await self._journal.list_delegations(limit=limit, active=active, before=before)
        now = time.time()
        views = [self._look(run) if (run := self._runs.get(r.id)) is not None else r.view(now) for r in records]
        return [view.brief() for view in views if not active or not is_terminal(DELEGATION_TABLE, view.state)]

    async def audit(self, delegation_id: str, *, patch: bool) -> AuditReport:
        """Return what the delegation changed.

        Raises:
            SubletError: ``NOT_FOUND``, also while there is no report yet.
        """
        run = self._runs.get(delegation_id)
        record = run.record if run is not None else await self._journal.require_delegation(delegation_id)
        if record.audit is None:
            raise _no_audit(record)
        if not patch:
            return record.audit
        made = await in_background(patch_of, self._tools.trees.auditor, record)
        return record.audit.model_copy(update={"patch": made.text, "patch_truncated": made.truncated})

    async def cancel(self, delegation_id: str, why: str) -> DelegationView:
        """End the delegation now. Cancelling what is over changes nothing and says so by its state.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        if (run := self._runs.get(delegation_id)) is not None:
            await self._cancel([run], why)
        return await self.view(delegation_id)

    async def extend(
        self, delegation_id: str, seconds: int, max_ttl_seconds: int, approve: Approve, rest_of: RestOf
    ) -> DelegationView:
        """Lengthen the lease by agreement of both sides: ``Steering.extend``.

        Raises:
            SubletError: ``NOT_FOUND``, or as ``Steering.extend``.
        """
        await (await self._running(delegation_id)).steering.extend(seconds, max_ttl_seconds, approve, rest_of)
        return await self.view(delegation_id)

    async def say(self, delegation_id: str, follow_up: FollowUp) -> DelegationView:
        """Give the agent a further prompt: ``Steering.say``.

        Raises:
            SubletError: ``NOT_FOUND``, or as ``Steering.say``.
        """
        await (await self._running(delegation_id)).steering.say(follow_up)
        return await self.view(delegation_id)

    async def _running(self, delegation_id: str) -> DelegationRun:
        """Return the run of a delegation that is under way, once it has begun or a while has passed.

        Raises:
            SubletError: ``NOT_FOUND``, or ``CONFLICT`` where it is over.
        """
        if (run := self._runs.get(delegation_id)) is not None:
            await run.steering.begun()
            return run
        record = await self._journal.require_delegation(delegation_id)
        raise SubletError(LocalCode.CONFLICT, f"{record.id} is over: {record.state}", "Delegate again.")

    async def end_peer(self, public_key: bytes, why: str) -> None:
        """Cancel everything that is under way with the peer of that key, whatever it was called when it began."""
        await self._cancel([run for run in self._runs.values() if run.peer_key == public_key], why)

    async def _cancel(self, runs: Iterable[DelegationRun], why: str) -> None:
        event = CancelCame(SubletError(ErrorCode.CANCELLED, why, "Delegate again if needed."))
        waiting = list(runs)
        for run in waiting:
            self._stop(run, event)
        with anyio.move_on_after(END_SECONDS):
            for run in waiting:
                await run.over.wait()

    def _stop(self, run: DelegationRun, event: CancelCame | ReadAsOver) -> None:
        """End ``run`` in a task of ours, so that a caller who gives up does not stop it half way."""
        self._tasks.start("the end of a delegation", self._shielded, run.stop, event)

    def _look(self, run: DelegationRun) -> DelegationView:
        """Return the view of ``run``; where the clock says that its lease is over, see to it that it is."""
        now = time.time()
        if run.record.overdue(now):
            self._stop(run, ReadAsOver())
        return run.view(now)

    def _quota(self, request: CreateDelegation) -> LeaseQuota:
        """Return what the executor may add: as much again as may be lent at all, or what the request says."""
        limits = self._tools.limits().quota(request.max_total_bytes, request.max_files, request.max_file_bytes)
        return LeaseQuota(
            max_total_bytes=limits.max_total_bytes, max_files=limits.max_files, max_file_bytes=limits.max_file_bytes
        )

    async def _known(self, request: CreateDelegation, caller: str) -> DelegationView | None:
        """Return what the first try of ``request`` made.

        Raises:
            SubletError: ``CONFLICT`` where the key was used for another request.
        """
        if request.idempotency_key is None:
            return None
        known = await self._journal.find_delegation(caller, request.idempotency_key)
        if known is None:
            return None
        if known.request != request:
            raise SubletError(
                LocalCode.CONFLICT,
                f"the idempotency key was used for another request, {known.id}",
                "Use a new key for a new request.",
            )
        return await self.view(known.id)

    async def _take_over(self) -> None:
        """Go on with what an earlier process has left, before anything new begins; nothing is waited for here."""
        records = await self._journal.list_settled(settled=False)
        kept = {record.id for record in records}
        await in_background(_sweep, self._tools.memories, kept, self._tools.trees.staging.aside)
        resources = await self._journal.resources.open_resources()
        # From here on nothing can fail, so that what is begun is not begun again by the next try.
        going_on: list[DelegationRun] = []
        for record in records:
            if record.id in self._runs:
                continue
            peer = self._find_peer(record)
            if peer is None:
                self._tasks.start("settling a delegation", self._settle, record)
                continue
            lent, noted = lent_directories(record), self.declared.note
            going_on.append(DelegationRun(record, peer, lent, self._tools, noted, recovered=True))
        # Executors may be back sooner than their leases: each is decided when it is served, or its run is over.
        self._tools.data_plane.take_up.expect(run.record.id for run in going_on)
        for run in going_on:
            self._runs[run.record.id] = run
            self._tasks.start("a delegation", self._drive, run)
        for held in resources:
            if held.kind == "remote_task" and held.owner not in self._runs:
                self._tasks.start("telling a peer of an end", self._late_news.tell, held.owner)
        self._taken_over.set()

    async def _settle(self, record: DelegationRecord) -> None:
        memory = self._tools.memories / record.id
        try:
            await end_interrupted(record, self._journal, self._tools.trees, partial(recall, memory))
            await in_background(memory.unlink, True)
        except Exception:
            log.exception("a delegation could not be settled", delegation_id=record.id)

    async def _drive(self, run: DelegationRun) -> None:
        try:
            await self._shielded(run.drive)
        finally:
            self._runs.pop(run.record.id, None)
            if run.record.terminal:
                self._settled(run.record.view(time.time()))
        if run.untold:
            await self._late_news.tell(run.record.id)

    async def _shielded(self, call: Callable[[*Arguments], Awaitable[None]], *arguments: *Arguments) -> None:
        # The stop of the daemon ends runs in order, by ``_stop_all``, and not by cancelling what they are doing.
        with anyio.CancelScope(shield=True):
            await call(*arguments)

    async def _stop_all(self) -> None:
        error = SubletError(
            ErrorCode.CANCELLED, "the daemon was stopped while the delegation ran", "Start it and delegate again."
        )
        runs = list(self._runs.values())
        with anyio.move_on_after(within(STOP_SECONDS)):
            async with anyio.create_task_group() as group:
                for run in runs:
                    group.start_soon(run.stop, CancelCame(error))
            for run in runs:
                await run.finished.wait()
        for run in runs:
            run.abandon()


def _sweep(memories: Path, kept: set[str], aside: SetAside) -> None:
    """Remove what is remembered of leases other than ``kept``."""
    for name in aside.names(memories):
        if name not in kept:
            aside.remove_later(memories / name)


def _no_audit(record: DelegationRecord) -> SubletError:
    if record.audit_error is not None:
        return SubletError(
            LocalCode.NOT_FOUND, f"{record.id} has no audit: {record.audit_error.message}", record.audit_error.hint
        )
    why = "It ended before any access was given." if record.settled else "It is made when access is cut."
    return SubletError(LocalCode.NOT_FOUND, f"{record.id} has no audit; its state is: {record.state}", why)
