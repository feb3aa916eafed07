"""Going along with the work of a peer from START until DONE: progress, the link, the quota (AWCP 4.4, DESIGN 4.6)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import structlog

from sublet.daemon.api.delegation_views import ConditionView
from sublet.daemon.api.reports import agent_end, failed_result, refusal, result_view
from sublet.daemon.lending.core_state import heard_of
from sublet.daemon.lending.keeper import DelegationKeeper
from sublet.daemon.lending.lent_access import DelegatorTools, LentAccess
from sublet.daemon.lending.peer_condition import PeerCondition
from sublet.daemon.lending.steering import Steering
from sublet.daemon.ports.peer_link import PeerAddress, RemoteTask, Silence, Update
from sublet.daemon.storage.output_log import OutputLog
from sublet.daemon.tasks.failures import sole_failure
from sublet.protocol.delegation.events import DoneCame, Failed, ProgressCame
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.messages import Accept, Done, Error, ErrorExtension, Progress

REDIAL_PEER_SECONDS = 1.0
"""How long to wait before an executor that lost its link is dialled again."""
QUOTA_GRACE_SECONDS = 5
"""How long an agent that met the quota may go on, to see the I/O errors and say so."""
QUOTA_SLACK_SECONDS = 5.0
"""How much longer the peer is waited for before access is cut anyway."""

log = structlog.get_logger(__name__)


class GoingAlong:
    """Goes along with the work of one delegation, and has the core hear of it."""

    def __init__(
        self,
        keeper: DelegationKeeper,
        access: LentAccess,
        steering: Steering,
        peer: PeerAddress,
        tools: DelegatorTools,
        *,
        recovered: bool,
    ) -> None:
        self._keeper = keeper
        self._access = access
        self._steering = steering
        self._peer = peer
        self._tools = tools
        self._recovered = recovered
        self._output = OutputLog(tools.journal, keeper.record.id)
        self._condition = PeerCondition(peer.name)
        self._dialling = False

    async def until_done(self, news: AsyncGenerator[Update, None], task: RemoteTask, accept: Accept) -> None:
        """Go along with the work until it is over.

        Args:
            news: what the peer tells; closed in the end.
            task: the peer's task.
            accept: the peer's ACCEPT.

        Raises:
            SubletError: what keeps us from hearing of it.
        """
        reverse = accept.sublet.reverse
        watching = anyio.CancelScope()
        with sole_failure(SubletError):
            async with anyio.create_task_group() as group:
                group.start_soon(self._end_at_quota, task)
                group.start_soon(self._access.remember)
                group.start_soon(self._access.denials.serve, self._tell_denied)
                if self._keeper.record.transport == "sshfs":
                    # The others need no connection between the first moment and the last.
                    group.start_soon(self._watch, watching)
                if (changes := self._access.changes()) is not None:
                    group.start_soon(changes.serve)
                group.start_soon(self._steering.deliver)
                async with aclosing(news) as updates:
                    async for update in updates:
                        if isinstance(update, Done | Error):
                            watching.cancel()
                            await self._take(update)
                            break
                        if self._keeper.over:
                            break
                        if self._condition.hear(update):
                            await self._keeper.note(condition=self._condition.view)
                        if isinstance(update, Silence):
                            continue
                        await self._hear(update)
                        if update.phase == "need_reverse" and reverse is not None and not self._dialling:
                            self._dialling = True
                            group.start_soon(self._dial, reverse.port)
                        await self._progress(update)
                    else:
                        raise SubletError(LocalCode.INTERNAL, "the link ended without a terminal message")
                group.cancel_scope.cancel()
        await self._access.denials.rest(self._tell_denied)

    async def _watch(self, watching: anyio.CancelScope) -> None:
        """Show while the work runs whether the executor is connected to the files, until ``watching`` is cancelled."""
        with watching:
            await self._access.connections.serve(self._connected)

    async def _connected(self, connected: bool) -> None:
        if self._condition.see(connected):
            await self._keeper.note(condition=self._condition.view)

    async def _end_at_quota(self, task: RemoteTask) -> None:
        """Once a change is refused for the quota, have the peer end its work as failed; it may say its last word.

        Raises:
            SubletError: why the work failed, where the peer takes no notice.
        """
        await self._access.quota_met.wait()
        try:
            self._access.check_quota()
        except SubletError as error:
            await self._keeper.note(condition=ConditionView(kind="ending", detail=error.message))
            message = Error(
                delegation_id=self._keeper.record.id,
                code=ErrorCode.TASK_FAILED,
                message=error.message,
                hint=error.hint,
                sublet=ErrorExtension(grace_seconds=QUOTA_GRACE_SECONDS),
            )
            with anyio.move_on_after(QUOTA_GRACE_SECONDS + QUOTA_SLACK_SECONDS):
                try:
                    await self._tools.link.fail(self._peer, task, message)
                except SubletError as failure:
                    log.warning(
                        "peer was not told of the quota", delegation_id=self._keeper.record.id, reason=str(failure)
                    )
                await anyio.sleep_forever()
            raise

    async def _dial(self, port: int) -> None:
        """Reach the executor from here, and again where the link that it had was lost.

        Raises:
            SubletError: ``MOUNT_FAILED`` where it has not had the files yet, and can't be reached.
        """
        try:
            while True:
                try:
                    await self._access.dial(port)
                    return
                except SubletError as error:
                    if not self._condition.link_is_down and not self._recovered:
                        raise
                    log.info(
                        "the executor can't be dialled", delegation_id=self._keeper.record.id, reason=error.message
                    )
                await anyio.sleep(REDIAL_PEER_SECONDS)
                if not self._condition.link_is_down:
                    return
        finally:
            self._dialling = False

    async def _take(self, end: Done | Error) -> None:
        """Have the core decide what DONE or ERROR comes to."""
        said = refusal(end, self._peer.name) if isinstance(end, Error) else None
        if self._access.returned:
            await self._keeper.note(returned=True)
        failure: SubletError | None = None
        try:
            self._access.check_quota()
            if said is None:
                self._access.check_returned()
        except SubletError as error:
            failure = error
        heard = heard_of(end.sublet.prompts)
        if failure is None and isinstance(end, Done):
            condition = ConditionView(kind="ending", detail="the work is done and access is cut; auditing")
            done = DoneCame(heard)
            facts = {"result": result_view(end), "condition": condition}
            await self._keeper.feed(done, facts, fits=lambda record: record.now.done)
            return
        why = failure or said
        assert why is not None
        how = agent_end(end)
        said_last = {} if how is None else {"result": failed_result(how)}
        event = DoneCame(heard, why) if said is None else Failed(why, by_peer=True, heard=heard)
        await self._keeper.feed(event, said_last, fits=lambda record: record.error is why)

    async def _hear(self, update: Progress) -> None:
        heard, running = heard_of(update.prompts), update.phase == "running"
        if heard or (running and self._keeper.record.state is DelegationState.STARTED):
            await self._keeper.feed(ProgressCame(running, heard))

    async def _progress(self, update: Progress) -> None:
        if update.text or update.dropped_chars:
            self._access.show_log(await self._output.append(update.stream, update.text, update.dropped_chars))

    async def _tell_denied(self, lines: str) -> None:
        self._access.show_log(await self._output.append("note", lines))
