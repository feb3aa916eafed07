"""One delegation from its creation to its end, on the delegator's side (AWCP 3, DESIGN 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TypeAlias

import anyio
import structlog

from sublet import deadlines
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.reports import failed_result, refusal
from sublet.daemon.lending.build_files import build_files
from sublet.daemon.lending.going_along import GoingAlong
from sublet.daemon.lending.holding import hold
from sublet.daemon.lending.inviting import invitation, waiting
from sublet.daemon.lending.keeper import DelegationKeeper, leads_to
from sublet.daemon.lending.lent_access import DelegatorTools, LentAccess
from sublet.daemon.lending.steering import Steering
from sublet.daemon.ports.peer_link import NotConnected, PeerAddress, RemoteTask, Update
from sublet.daemon.storage.records import DelegationRecord
from sublet.daemon.storage.resource_log import NOTHING, ResourceChange
from sublet.daemon.tasks.background import in_background
from sublet.protocol.delegation import phases
from sublet.protocol.delegation.agreement import enforced_by
from sublet.protocol.delegation.events import (
    AcceptCame,
    CancelCame,
    Created,
    Failed,
    FoundAgain,
    InviteDue,
    InviteUnheard,
    Opened,
    Prepared,
    ReadAsOver,
    Settled,
    TakenOver,
    TimePassed,
)
from sublet.protocol.delegation.outputs import (
    FindAgain,
    Follow,
    InviteLater,
    Lengthen,
    Open,
    Output,
    Prepare,
    Refuse,
    Revoke,
    SendInvite,
    SendStart,
    Serve,
    Settle,
)
from sublet.protocol.delegation.state import Delegation
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.messages import Accept, Error
from sublet.workspace.export import LentDirectory
from sublet.workspace.view.admission import Admission, scan_all

HELD_HERE = ("lock", "lease")
"""Kinds of resources that are given back here, whatever the peer does."""
CANCEL_PEER_SECONDS = 3.0
"""How long the peer is given to hear that its task is over; access is cut long before."""
log = structlog.get_logger(__name__)


class DelegationRun:
    """Does what the core of one delegation wants, from its beginning or, ``recovered``, after a process was killed.

    ``accepted`` is told of the record with what the peer's ACCEPT said, once that is journalled.
    ``recorded`` is set once it is journalled, or ``refused`` tells why it is not; ``over`` once its end is journalled,
    or nothing can change it any more, and access is cut; ``finished`` once it is settled.
    """

    def __init__(
        self,
        record: DelegationRecord,
        peer: PeerAddress,
        resources: tuple[LentDirectory, ...],
        tools: DelegatorTools,
        accepted: Callable[[DelegationRecord], None],
        *,
        recovered: bool = False,
    ) -> None:
        self.recorded = asyncio.Event()
        self.over = asyncio.Event()
        self.finished = asyncio.Event()
        self.refused: SubletError | None = None
        self._keeper = DelegationKeeper(record, tools.journal, perform=self._perform, changed=self._changed)
        self._peer = peer
        self._resources = resources
        self._tools = tools
        self._accepted = accepted
        self._access = LentAccess(self._keeper, peer, tools)
        self._mounted: list[str] = []
        self._scope = anyio.CancelScope()
        self._ending = anyio.CancelScope(shield=True)
        self._main: asyncio.Task[object] | None = None
        self._task = RemoteTask(record.task_id or "", record.context_id or record.id)
        self._settle: Settle | None = None
        self._recovered = recovered
        self.steering = Steering(self._keeper, self._access, peer, tools.link)
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
        self._main = asyncio.current_task()
        try:
            outputs = await self._begin()
            if self.refused is None:
                async with AsyncExitStack() as held:
                    await self._work(outputs, held)
                    with self._ending:
                        await self._end(held)
        except Exception:
            log.exception("a delegation could not be settled", delegation_id=self.record.id)
        finally:
            self._access.revoke("over")
            self.over.set()
            self.finished.set()

    async def stop(self, event: CancelCame | Failed | ReadAsOver) -> None:
        """Have the core hear of an end; where it is one, it is journalled and access is cut before this returns.

        What is over already does not change. Must not be cancelled: call it in a task of the service.
        """
        await self.recorded.wait()
        await self._keeper.feed(event)
        if self._keeper.over:
            self.over.set()

    def abandon(self) -> None:
        """Leave what is not settled yet to the next start; access is cut already. For the stop of the daemon."""
        self._scope.cancel()
        self._ending.cancel()

    # What the core wants done at once

    def _perform(self, output: Output) -> None:
        match output:
            case Serve(deadline):
                self._access.serve(deadline)
            case Lengthen(seconds):
                self._access.extend(seconds)
            case Revoke(reason):
                self._access.revoke(reason)
            case Settle():
                self._settle = output
            case Refuse(key, error) if key == self.record.id:
                self.refused = error
            case _:
                self.steering.perform(output)

    def _changed(self, state: Delegation) -> None:
        self.steering.changed()
        if not self._keeper.over:
            self._scope.deadline = phases.wake_at(state)
            return
        self.over.set()
        if asyncio.current_task() is not self._main:
            self._scope.cancel()

    # What it wants done in turn

    async def _begin(self) -> tuple[Output, ...]:
        try:
            return await self._keeper.feed(TakenOver() if self._recovered else Created())
        finally:
            self.recorded.set()

    async def _work(self, outputs: tuple[Output, ...], held: AsyncExitStack) -> None:
        """Do one thing after another until it is over."""
        failure: SubletError | None = None
        try:
            with self._scope:
                if self._recovered and self.record.expires_at is not None:
                    await self._access.recall()
                while not self._keeper.over:
                    outputs = await self._do(_next(outputs), held)
        except SubletError as error:
            failure = error
        except Exception:
            log.exception("delegation broke", delegation_id=self.record.id)
            failure = SubletError(LocalCode.INTERNAL, "an internal error ended the delegation", "See the daemon's log.")
        if failure is not None:
            facts = {} if failure.agent_end is None else {"result": failed_result(failure.agent_end)}
            await self._keeper.feed(Failed(failure), facts, fits=lambda record: record.error is failure)
        elif not self._keeper.over:
            await self._keeper.feed(TimePassed())

    async def _do(self, output: Output | None, held: AsyncExitStack) -> tuple[Output, ...]:
        """Do what comes next, and return what comes after it.

        Raises:
            SubletError: it can't be done.
        """
        keeper = self._keeper
        match output:
            case Prepare(again):
                if again:
                    await self._access.start_over()
                await self._admit()
                snapshots = await self._prepare(held)
                taken = ResourceChange(takes={"remote_task": {"peer": self.record.peer}})
                return await keeper.feed(
                    Prepared(), {"snapshots": snapshots}, fits=leads_to(DelegationState.INVITED), held=taken
                )
            case FindAgain(serve):
                return await self._find_again(held, serve=serve)
            case SendInvite():
                return await self._invite()
            case InviteLater(seconds):
                await keeper.note(condition=waiting(output))
                await anyio.sleep(seconds)
                return await keeper.feed(InviteDue())
            case Open():
                await self._access.prepare(self._accept)
                taken = ResourceChange(takes={"lease": {"user": self.record.id}})
                return await keeper.feed(Opened(), fits=leads_to(DelegationState.STARTED), held=taken)
            case SendStart():
                await self._access.check()
                await self._follow(self._tools.link.run(self._peer, self._task, self._access.start()))
            case Follow():
                await self._access.check()
                log.info("a delegation goes on", delegation_id=self.record.id, generation=self.record.generation)
                await self._follow(self._tools.link.follow(self._peer, self._task, self._access.start))
            case _:
                await anyio.sleep_forever()  # another end is being journalled, which cancels this
        return ()

    @property
    def _accept(self) -> Accept:
        assert self.record.accept is not None
        return self.record.accept

    async def _find_again(self, held: AsyncExitStack, *, serve: bool) -> tuple[Output, ...]:
        """Go on where an earlier process was killed: nothing is done twice."""
        record = self.record
        if record.request.result_mode == "live":
            await self._hold(held)
        if not self._keeper.overdue:
            await self._access.take_up()
        if serve:
            await self._access.prepare_again(self._accept)
        taken = (
            ResourceChange(takes={"remote_task": {"peer": record.peer}})
            if record.state is DelegationState.INVITED
            else NOTHING
        )
        if taken:
            await self._keeper.note(taken)
        return await self._keeper.feed(FoundAgain())

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
        if self.record.request.result_mode == "live":
            await self._hold(held)
            return await self._access.baseline()
        async with AsyncExitStack() as copying:
            await hold(copying, [(Path(lent.path), "ro") for lent in self.record.resources], self._keeper, self._tools)
            snapshots = await self._access.baseline()
        await self._tools.journal.resources.release_owned(self.record.id, "lock")
        return snapshots

    async def _hold(self, held: AsyncExitStack) -> None:
        wants = [(Path(lent.path), lent.access_mode) for lent in self.record.resources]
        await hold(held, wants, self._keeper, self._tools)

    async def _invite(self) -> tuple[Output, ...]:
        """Send INVITE, and have the core hear its answer."""
        try:
            task, answer = await self._tools.link.invite(self._peer, invitation(self.record))
        except SubletError as error:
            return await self._keeper.feed(InviteUnheard(error, sent=not isinstance(error, NotConnected)))
        if isinstance(answer, Error):
            return await self._keeper.feed(Failed(refusal(answer, self._peer.name), by_peer=True))
        self._task = task
        # A mount leaves out the links that it can't follow; the other transports carry them.
        unmountable = self.record.unmountable if answer.sublet.transport == "sshfs" else self._mounted
        facts = {
            "condition": None,
            "transport": answer.sublet.transport,
            "unmountable": unmountable,
            "task_id": task.task_id,
            "context_id": task.context_id,
            "accept": answer,
            "sandbox_enforced": enforced_by(answer),
            "room": self._tools.rooms.plan(self._peer.public_key, answer.sublet.entity),
        }
        outputs = await self._keeper.feed(AcceptCame(answer), facts, fits=leads_to(DelegationState.ACCEPTED))
        self._accepted(self.record)
        return outputs

    async def _follow(self, news: AsyncGenerator[Update, None]) -> None:
        await self._going_along.until_done(news, self._task, self._accept)

    # The end

    async def _end(self, held_again: AsyncExitStack) -> None:
        """Tell the peer and make the audit, and only after that be settled."""
        if self._settle is None:
            return
        if self._settle.again and self.record.request.result_mode == "live":
            # The next lease of the directory begins only when this one is audited.
            with suppress(SubletError):
                await self._hold(held_again)
        async with anyio.create_task_group() as group:
            if self._settle.tell:
                group.start_soon(self._tell_peer)
            group.start_soon(self._access.settle)
        held = ResourceChange(gives_back=HELD_HERE if self.untold else ())
        await self._keeper.feed(Settled(told=not self.untold), {"condition": None}, held=held)
        if self.record.settled:
            await self._access.forget()

    async def _tell_peer(self) -> None:
        """Ask the peer to stop where it may still be working; the end waits ``CANCEL_PEER_SECONDS`` for it at most.

        A peer that has not heard us by then is told later (``LateNews``).
        """
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


def _next(outputs: tuple[Output, ...]) -> Output | None:
    """Return what of ``outputs`` is done in turn."""
    return next((output for output in outputs if isinstance(output, InTurn)), None)


InTurn: TypeAlias = Prepare | FindAgain | SendInvite | InviteLater | Open | SendStart | Follow
"""What takes a while, one after the other."""
