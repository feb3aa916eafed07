"""One delegation from its creation to its end, on the delegator's side (AWCP 3, DESIGN 4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import structlog

from sublet import deadlines
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.reports import failed_result, refusal
from sublet.daemon.background import in_background
from sublet.daemon.cautions import build_files
from sublet.daemon.lending.agreement import check_mount_point, narrowed, resumable
from sublet.daemon.lending.enforcement import check_enforced, enforced_by
from sublet.daemon.lending.going_along import GoingAlong
from sublet.daemon.lending.holding import hold
from sublet.daemon.lending.inviting import invited
from sublet.daemon.lending.keeper import DelegationKeeper, DelegationOver
from sublet.daemon.lending.lent_access import DelegatorTools, LentAccess
from sublet.daemon.lending.lent_resources import limited
from sublet.daemon.lending.steering import Steering
from sublet.daemon.lending.transports import chosen_transport
from sublet.daemon.ports import PeerAddress, RemoteTask, Update
from sublet.daemon.storage.journal import NOTHING, Held
from sublet.daemon.storage.records import DelegationRecord, error_view, interrupted, lease_over
from sublet.daemon.times import unix_seconds
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationEvent, DelegationState
from sublet.protocol.messages import (
    Accept,
    Error,
)
from sublet.workspace.model import LentDirectory
from sublet.workspace.view.admission import Admission, scan_all

HELD_HERE = ("lock", "lease")
"""Kinds of resources that are given back here, whatever the peer does."""
CANCEL_PEER_SECONDS = 3.0
"""How long the peer is given to hear that its task is over; access is cut long before."""
log = structlog.get_logger(__name__)


class DelegationRun:
    """Drives one delegation to its end, from its beginning or, ``recovered``, from where an earlier process was killed.

    ``recorded`` is set once it is journalled, or ``refused`` tells why it is not; ``over`` once its end is journalled,
    or nothing can change it any more, and access is cut; ``finished`` once it is settled.
    """

    def __init__(
        self,
        record: DelegationRecord,
        peer: PeerAddress,
        resources: tuple[LentDirectory, ...],
        tools: DelegatorTools,
        *,
        recovered: bool = False,
    ) -> None:
        self.recorded = asyncio.Event()
        self.over = asyncio.Event()
        self.finished = asyncio.Event()
        self.refused: SubletError | None = None
        self._keeper = DelegationKeeper(record, tools.journal)
        self._peer = peer
        self._resources = resources
        self._tools = tools
        self._access = LentAccess(self._keeper, peer, tools)
        self._mounted: list[str] = []
        self._scope = anyio.CancelScope()
        self._ending = anyio.CancelScope(shield=True)
        self._stopped: SubletError | None = None
        self._task: RemoteTask | None = None
        self._recovered = recovered
        self.steering = Steering(self._keeper, self._access, peer, tools.link, self._extended)
        self._going_along = GoingAlong(self._keeper, self._access, self.steering, peer, tools, recovered=recovered)
        self.untold = False
        """Whether the peer may still hold the task and has not been told that it is over."""

    @property
    def peer_key(self) -> bytes:
        """The public key of whom it goes to, whatever that peer is called meanwhile."""
        return self._peer.public_key

    @property
    def record(self) -> DelegationRecord:
        """The record as last journalled."""
        return self._keeper.record

    def view(self, now: float) -> DelegationView:
        """Return the delegation as it is at ``now`` (Unix seconds), with what went over the data plane until then."""
        view = self.record.view(now)
        return view if self.record.settled else view.model_copy(update={"usage": self._access.usage()})

    async def drive(self) -> None:
        """Run to the end; afterwards the record is terminal and settled, and nothing of it is left in force.

        Nothing is raised: where the journal itself fails, access is cut all the same and the next start settles.
        """
        try:
            if await self._begin():
                async with AsyncExitStack() as held:
                    failure = await self._work(held)
                    with self._ending:
                        await self._end(failure)
        except Exception:
            log.exception("a delegation could not be settled", delegation_id=self.record.id)
        finally:
            self._access.revoke("over")
            self.over.set()
            self.finished.set()

    async def stop(self, event: DelegationEvent, error: SubletError) -> None:
        """End the delegation now: journal it, cut access, then let ``drive`` clean up.

        What is over already does not change. Must not be cancelled: call it in a task of the service.
        """
        await self.recorded.wait()
        try:
            await self._keeper.end(event, error=error_view(error))
        except SubletError as failure:
            # Access is cut even where that can't be written down.
            log.error("the end could not be journalled", delegation_id=self.record.id, reason=str(failure))
            self._stopped = self._stopped or error
        if self.record.terminal or self._stopped is not None:
            self._access.revoke(str(error.code))
            self._scope.cancel()
        self.over.set()

    def abandon(self) -> None:
        """Leave what is not settled yet to the next start; access is cut already. For the stop of the daemon."""
        self._scope.cancel()
        self._ending.cancel()

    async def _begin(self) -> bool:
        try:
            if self._recovered:
                await self._keeper.note(generation=self.record.generation + 1)
            else:
                await self._keeper.begin()
        except SubletError as error:
            self.refused = error
        finally:
            self.recorded.set()
        return self.refused is None

    async def _work(self, held: AsyncExitStack) -> SubletError | None:
        """Do everything until the peer's DONE; return why that was not reached, unless it is journalled already."""
        try:
            self._scope.deadline = anyio.current_time() + self._time_left()
            with self._scope:
                await (self._resume(held) if self._recovered else self._lend(held))
                return None
        except DelegationOver:
            return None
        except SubletError as error:
            return error
        except Exception:
            log.exception("delegation broke", delegation_id=self.record.id)
            return SubletError(LocalCode.INTERNAL, "an internal error ended the delegation", "See the daemon's log.")
        return self._stopped or self._time_over()

    def _extended(self, seconds: int) -> None:
        self._scope.deadline += seconds

    def _time_left(self) -> float:
        """Return for how many seconds it may go on, by the wall clock where an earlier process has begun it."""
        record = self.record
        if not self._recovered or self._keeper.over or record.overdue(time.time()):
            return record.ttl_seconds
        ends = unix_seconds(record.expires_at or record.created_at)
        return ends - time.time() + (0 if record.expires_at else record.ttl_seconds)

    async def _lend(self, held: AsyncExitStack) -> None:
        await self._admit()
        await self._start(await self._ask(await self._prepare(held)))

    async def _resume(self, held: AsyncExitStack) -> None:
        """Go on where an earlier process was killed: nothing is done twice, and what can't go on is told so.

        Raises:
            SubletError: why it can't go on.
            DelegationOver: it has ended meanwhile.
        """
        record = self.record
        if record.snapshots and record.result is None:
            self._task = RemoteTask(record.task_id or "", record.context_id or record.id)
        if record.expires_at is not None:
            await self._access.recall()
        if record.state is DelegationState.CREATED:
            await self._access.start_over()
            await self._lend(held)
            return
        if record.request.result_mode == "live":
            await hold(
                held, [(Path(lent.path), lent.access_mode) for lent in record.resources], self._keeper, self._tools
            )
        if self._keeper.over:
            return
        if record.overdue(time.time()):
            raise lease_over(record.ttl_seconds)
        await self._access.take_up()
        if record.state is DelegationState.INVITED:
            await self._start(await self._ask(record.snapshots))
        elif record.state is DelegationState.ACCEPTED and record.accept is not None:
            await self._start(record.accept)
        elif resumable(record) and record.accept is not None and self._task is not None:
            await self._access.resume(record.accept, self._scope.deadline)
            log.info("a delegation goes on", delegation_id=record.id, generation=record.generation)
            news = self._tools.link.follow(self._peer, self._task, self._access.start)
            await self._follow(news, record.accept)
        else:
            raise interrupted()

    async def _start(self, accept: Accept) -> None:
        # Until now the time asked for bounded the wait; from here on the lease has it.
        self._scope.deadline = anyio.current_time() + self._lease_seconds()
        start = await self._access.open(accept, self._scope.deadline)
        assert self._task is not None
        await self._follow(self._tools.link.run(self._peer, self._task, start), accept)

    def _lease_seconds(self) -> float:
        """Return how long a lease may be that begins now: as agreed, and within that of the agent which asked for it.

        What was waited for until now is not added to the time of whoever asked.
        """
        record = self.record
        if record.chain is None or record.chain.ttl is None:
            return record.ttl_seconds
        return min(record.ttl_seconds, unix_seconds(record.created_at) + record.chain.ttl - time.time())

    async def _admit(self) -> None:
        lent = [resource.path for resource in self.record.resources if resource.access_mode == "rw"]

        def look() -> tuple[Admission, list[str]]:
            return scan_all(self._resources, self._tools.limits()), build_files(lent)

        admission, builds = await in_background(look)
        self._mounted = list(admission.mounted)
        await self._keeper.note(
            hidden=list(admission.hidden),
            unmountable=list(admission.unmountable),
            left_out=admission.left_out,
            build_files=builds,
        )

    async def _prepare(self, held: AsyncExitStack) -> dict[str, str]:
        """Take the directories and record what the executor will see; return the snapshots' ids.

        A staged lease holds nothing while it runs. Only while its copy is made nobody else may be writing.
        """
        wants = [(Path(lent.path), lent.access_mode) for lent in self.record.resources]
        if self.record.request.result_mode == "live":
            await hold(held, wants, self._keeper, self._tools)
            return await self._access.baseline()
        async with AsyncExitStack() as copying:
            await hold(copying, [(path, "ro") for path, _ in wants], self._keeper, self._tools)
            snapshots = await self._access.baseline()
        await self._tools.journal.release_owned(self.record.id, "lock")
        return snapshots

    async def _ask(self, snapshots: dict[str, str]) -> Accept:
        record = self.record
        held = Held(takes={"remote_task": {"peer": record.peer}})
        if record.state is DelegationState.CREATED:
            await self._keeper.advance(DelegationEvent.INVITE, held, snapshots=snapshots)
        else:
            # An earlier process has invited, and may have been heard: the peer knows a repeated INVITE by its id.
            await self._keeper.note(held, snapshots=snapshots)
        # Until it answers, the task is known by its delegation only; it may be there all the same.
        self._task = RemoteTask("", record.id)
        try:
            task, answer = await invited(self._tools.link, self._peer, self._keeper)
        except SubletError:
            self._task = None
            raise
        if isinstance(answer, Error):
            self._task = None
            raise refusal(answer, self._peer.name)
        self._task = task
        check_mount_point(answer)
        check_enforced(record.request.require_enforced, answer, self._peer.name)
        transport = chosen_transport(record.request, answer)
        mode, ttl = narrowed(record, answer)
        # A mount leaves out the links that it can't follow; the other transports carry them.
        unmountable = record.unmountable if transport == "sshfs" else self._mounted
        await self._keeper.advance(
            DelegationEvent.ACCEPT,
            condition=None,
            transport=transport,
            unmountable=unmountable,
            task_id=task.task_id,
            context_id=task.context_id,
            accept=answer,
            access_mode=mode,
            resources=limited(record, mode),
            ttl_seconds=ttl,
            sandbox_enforced=enforced_by(answer),
            room=self._tools.rooms.plan(self._peer.public_key, answer.sublet.entity),
        )
        return answer

    async def _follow(self, news: AsyncGenerator[Update, None], accept: Accept) -> None:
        assert self._task is not None
        try:
            await self._going_along.until_done(news, self._task, accept)
        finally:
            if self._going_along.ended:
                self._task = None

    async def _end(self, failure: SubletError | None) -> None:
        """Journal the end and cut access, then tell the peer and make the audit, and only after that be settled."""
        try:
            if failure is not None:
                news: dict[str, object] = {"error": error_view(failure)}
                if failure.agent_end is not None:
                    await self.steering.heard(failure.agent_end.prompts)
                    news["result"] = failed_result(failure.agent_end)
                await self._keeper.end(_event_of(failure), NOTHING, **news)
        finally:
            self._access.revoke("over")
            self.over.set()
        async with anyio.create_task_group() as group:
            group.start_soon(self._tell_peer)
            group.start_soon(self._access.settle)
        held = Held(gives_back=HELD_HERE if self.untold else ())
        is_done = self.record.result is not None
        if not is_done or not await self._keeper.end(DelegationEvent.DONE, held, condition=None, settled=True):
            await self._keeper.note(held, condition=None, settled=True)
        await self._access.forget()

    async def _tell_peer(self) -> None:
        """Ask the peer to stop where it may still be working; the end waits ``CANCEL_PEER_SECONDS`` for it at most.

        A peer that has not heard us by then is told later (``LateNews``).
        """
        if self._task is None:
            return
        self.untold = True
        try:
            async with deadlines.timeout(CANCEL_PEER_SECONDS):
                await self._tools.link.cancel(self._peer, self._task)
            self.untold = False
        except (SubletError, TimeoutError) as error:
            reason = str(error) or f"no answer within {CANCEL_PEER_SECONDS:.0f} s"
            log.warning("peer was not told of the end", delegation_id=self.record.id, reason=reason)
        except Exception:
            log.exception("peer was not told of the end", delegation_id=self.record.id)

    def _time_over(self) -> SubletError:
        if self.record.expires_at is not None:
            return lease_over(self.record.ttl_seconds)
        return SubletError(
            ErrorCode.EXPIRED,
            "the time asked for passed before the peer could begin",
            "Delegate again with a longer --ttl, or when the directory or the peer is free.",
        )


def _event_of(failure: SubletError) -> DelegationEvent:
    if failure.code == ErrorCode.CANCELLED:
        return DelegationEvent.CANCEL
    return DelegationEvent.EXPIRE if failure.code == ErrorCode.EXPIRED else DelegationEvent.FAIL
