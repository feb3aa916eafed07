"""One delegation from its creation to its end, on the delegator's side (AWCP 3, DESIGN 4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import structlog

from sublet.daemon.keeper import DelegationKeeper, DelegationOver
from sublet.daemon.lent_access import DelegatorTools, LentAccess
from sublet.daemon.models import ConditionView, DelegationView, ResultView
from sublet.daemon.output_log import OutputLog
from sublet.daemon.ports import PeerAddress, RemoteTask
from sublet.daemon.records import DelegationRecord, error_view, lease_over
from sublet.daemon.reports import refusal, result_view
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationEvent, DelegationState
from sublet.protocol.messages import (
    Accept,
    Error,
    Invite,
    InviteExtension,
    Progress,
    ProposedLease,
    Start,
    Task,
    Workspace,
)
from sublet.workspace.admission import scan
from sublet.workspace.rules import Rules

RETRY_PEER_SECONDS = 2.0
"""How often an offline peer is tried again where the caller asked to wait for it."""
CANCEL_PEER_SECONDS = 5.0
"""How long the peer is given to hear that its task is over; access is cut long before."""

log = structlog.get_logger(__name__)


class DelegationRun:
    """Drives one delegation to its end."""

    def __init__(
        self,
        record: DelegationRecord,
        peer: PeerAddress,
        rules: Rules,
        tools: DelegatorTools,
        spawn: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        """Prepare to drive ``record``; ``spawn`` starts a task that the service owns."""
        self.finished = asyncio.Event()
        self._spawn = spawn
        self._keeper = DelegationKeeper(record, tools.journal)
        self._peer = peer
        self._rules = rules
        self._tools = tools
        self._access = LentAccess(self._keeper, peer, rules, tools)
        self._output = OutputLog(tools.journal, record.id)
        self._scope = anyio.CancelScope()
        self._task: RemoteTask | None = None

    @property
    def record(self) -> DelegationRecord:
        """The record as last journalled."""
        return self._keeper.record

    def view(self) -> DelegationView:
        """Return the delegation as it is now, with what went over the data plane until now."""
        view = self.record.view(time.time())
        return view if self.record.settled else view.model_copy(update={"usage": self._access.usage()})

    async def drive(self) -> None:
        """Run to the end; afterwards the record is terminal and settled, and nothing of it is left in force."""
        try:
            with self._scope:
                await self._to_the_end()
        except DelegationOver:
            pass
        except SubletError as error:
            await self._fail(error)
        except Exception:
            log.exception("delegation broke", delegation_id=self.record.id)
            await self._fail(SubletError(LocalCode.INTERNAL, "an internal error ended the delegation", "See the log."))
        finally:
            with anyio.CancelScope(shield=True):
                await self._keeper.note(condition=None, settled=True)
            self.finished.set()

    async def stop(self, event: DelegationEvent, error: SubletError) -> bool:
        """End the delegation now: journal it, cut access, then let the run clean up in the background.

        Returns:
            Whether it was this call that ended it; False where it was over already.
        """
        won = await self._keeper.end(event, error=error_view(error))
        if won:
            self._access.revoke(str(error.code))
            self._scope.cancel()
        return won

    async def _to_the_end(self) -> None:
        with anyio.move_on_after(self.record.ttl_seconds) as patience:
            await self._admit()
            async with self._directory():
                accept = await self._agree()
                patience.deadline = float("inf")  # from here on the lease has a deadline of its own
                await self._lend(accept)
        if patience.cancelled_caught:
            lapsed = SubletError(
                ErrorCode.EXPIRED,
                "the time asked for passed before the peer could begin",
                "Delegate again with a longer --ttl, or when the directory or the peer is free.",
            )
            await self._keeper.end(DelegationEvent.EXPIRE, error=error_view(lapsed))

    async def _admit(self) -> None:
        root = Path(self.record.workspace)
        admission = await asyncio.to_thread(scan, root, self._rules, self._tools.limits())
        await self._keeper.note(hidden=list(admission.hidden), unmountable=list(admission.unmountable))

    @asynccontextmanager
    async def _directory(self) -> AsyncIterator[None]:
        """Hold the directory against overlapping leases; while others hold it, say so (DESIGN 4.5)."""

        def waiting(position: int) -> None:
            detail = f"another lease holds this directory or a part of it; number {position} in the queue"
            condition = ConditionView(kind="queued", detail=detail, position=position) if position else None
            self._spawn(self._keeper.note(condition=condition))

        async with self._tools.locks.acquire(
            Path(self.record.workspace),
            self.record.access_mode,
            owner=self.record.id,
            timeout=self.record.ttl_seconds,
            on_position=waiting,
        ):
            lock = await self._tools.journal.acquire(self.record.id, "lock", {"path": self.record.workspace})
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await self._tools.journal.release(lock)

    async def _agree(self) -> Accept:
        """Make the baseline and ask the peer, side by side, since neither needs the other."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._access.baseline())
                asked = group.create_task(self._ask())
        except* (SubletError, DelegationOver) as failures:
            raise _first(failures) from None
        return asked.result()

    async def _ask(self) -> Accept:
        record = self.record
        invite = Invite(
            delegation_id=record.id,
            task=Task(description=record.description, prompt=record.request.prompt),
            lease=ProposedLease(ttl_seconds=record.ttl_seconds, access_mode=record.access_mode),
            workspace=Workspace(export_name=f"awcp/{record.id}"),
            sublet=InviteExtension(agent=record.agent),
        )
        await self._keeper.advance(DelegationEvent.INVITE, condition=None)
        task, answer = await self._invite(invite)
        if isinstance(answer, Error):
            raise refusal(answer, self._peer.name)
        self._task = task
        await self._tools.journal.acquire(record.id, "remote_task", {"task_id": task.task_id, "peer": record.peer})
        await self._keeper.advance(
            DelegationEvent.ACCEPT, condition=None, task_id=task.task_id, context_id=task.context_id
        )
        return answer

    async def _invite(self, invite: Invite) -> tuple[RemoteTask, Accept | Error]:
        while True:
            try:
                return await self._tools.link.invite(self._peer, invite)
            except SubletError as error:
                if error.code != LocalCode.PEER_UNREACHABLE or not self.record.request.wait_for_peer:
                    raise
                await self._keeper.note(condition=ConditionView(kind="waiting_for_peer", detail=error.message))
            await asyncio.sleep(RETRY_PEER_SECONDS)

    async def _lend(self, accept: Accept) -> None:
        """Open the lease and follow the work; whatever happens, cut access and make the audit."""
        constraints = accept.remote_constraints
        ttl = min(self.record.ttl_seconds, constraints.max_ttl_seconds or self.record.ttl_seconds)
        mode = "ro" if constraints.accepted_access_mode == "ro" else self.record.access_mode
        await self._keeper.note(ttl_seconds=ttl, access_mode=mode)
        try:
            with anyio.move_on_after(ttl) as lease:
                start = await self._access.open(accept, ttl)
                result = await self._follow(start, accept)
            if lease.cancelled_caught:
                await self._keeper.end(DelegationEvent.EXPIRE, error=error_view(lease_over(ttl)))
                return
        finally:
            with anyio.CancelScope(shield=True):
                await self._settle()
        await self._keeper.end(DelegationEvent.DONE, result=result, condition=None)

    async def _settle(self) -> None:
        self._access.revoke("over")
        if not self.record.terminal:
            await self._keeper.note(condition=ConditionView(kind="ending", detail="access is cut; auditing"))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tell_peer())
            group.create_task(self._access.settle("over"))

    async def _tell_peer(self) -> None:
        """Ask the peer to stop where it may still be working."""
        if self._task is not None:
            task, self._task = self._task, None
            with anyio.move_on_after(CANCEL_PEER_SECONDS):
                try:
                    await self._tools.link.cancel(self._peer, task)
                except SubletError as error:
                    log.warning("peer was not told of the end", delegation_id=self.record.id, reason=str(error))
        await self._tools.journal.release_owned(self.record.id, "remote_task")

    async def _follow(self, start: Start, accept: Accept) -> ResultView:
        """Send START and go along with the work until it ends.

        Raises:
            SubletError: the peer's ERROR, or what keeps us from hearing of it.
        """
        assert self._task is not None
        reverse = accept.sublet.reverse
        try:
            async with asyncio.TaskGroup() as group:
                async with aclosing(self._tools.link.run(self._peer, self._task, start)) as updates:
                    async for update in updates:
                        if isinstance(update, Progress):
                            if update.phase == "need_reverse" and reverse is not None:
                                group.create_task(self._access.dial(reverse.port))
                            await self._progress(update)
                            continue
                        self._task = None
                        if isinstance(update, Error):
                            raise refusal(update, self._peer.name)
                        await self._running()
                        return result_view(update)
        except* (SubletError, DelegationOver) as failures:
            raise _first(failures) from None
        raise SubletError(LocalCode.INTERNAL, "the link ended without a terminal message", "See the log.")

    async def _progress(self, update: Progress) -> None:
        if update.phase == "running":
            await self._running()
        if update.text or update.dropped_chars:
            self._access.show_log(await self._output.append(update.stream, update.text, update.dropped_chars))

    async def _running(self) -> None:
        if self.record.state is not DelegationState.RUNNING:
            await self._keeper.advance(DelegationEvent.RUN, condition=None)

    async def _fail(self, error: SubletError) -> None:
        event = DelegationEvent.FAIL
        if error.code == ErrorCode.CANCELLED:
            event = DelegationEvent.CANCEL
        elif error.code == ErrorCode.EXPIRED:
            event = DelegationEvent.EXPIRE
        with anyio.CancelScope(shield=True):
            await self._keeper.end(event, error=error_view(error))


def _first(failures: BaseExceptionGroup[Exception]) -> Exception:
    """Return the first single exception of a group: one failure ends a delegation, and a user wants to see one."""
    head = failures.exceptions[0]
    return _first(head) if isinstance(head, BaseExceptionGroup) else head
