"""The executor's service: answers INVITE, does the work of START, stops on cancel (AWCP 7, DESIGN 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import anyio
import asyncssh
import structlog

from sublet.daemon.api.daemon_api import KnownPeer
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.own_tasks import OwnTasks
from sublet.daemon.storage.journal import NOTHING, Held, Journal
from sublet.daemon.storage.records import AssignmentRecord, error_view
from sublet.daemon.times import rfc3339
from sublet.daemon.working.acceptance import Acceptance, choose_transport, same_invite, seconds_left
from sublet.daemon.working.assignment_run import AssignmentRun
from sublet.daemon.working.assignments import Assignments
from sublet.daemon.working.executor_tools import ExecutorTools
from sublet.daemon.working.pending import Pending, Promise, start_seconds
from sublet.daemon.working.refusals import cancelled, names_of, not_running, stopping, used
from sublet.daemon.working.talking import Work
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.ids import node_id as node_id_of
from sublet.protocol.lifecycle import AssignmentEvent, AssignmentState
from sublet.protocol.messages import Accept, Done, Invite, Progress, Start
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.confinement import Confinement
from sublet.supervisor.model import Outcome
from sublet.supervisor.slots import Slots

STOP_SECONDS = 4.0
"""How long a stop of the daemon waits for running work to be ended and unmounted."""

log = structlog.get_logger(__name__)


class Executor:
    """Implements ``ExecutorApi``; ``serve`` must run for the work to be done."""

    def __init__(
        self,
        *,
        journal: Journal,
        gate: Gatekeeper,
        slots: Slots,
        tools: ExecutorTools,
        agents: Callable[[], Sequence[AgentConfig]],
        max_ttl_seconds: Callable[[], int],
        reverse_port: Callable[[str], int | None],
        confinement: Callable[[AgentConfig], Confinement],
        require: Callable[[str], None],
        node_id: str,
        max_depth: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._require = require
        self._slots = slots
        self._tools = tools
        self._acceptance = Acceptance(
            gate=gate,
            agents=agents,
            max_ttl_seconds=max_ttl_seconds,
            reverse_port=reverse_port,
            confinement=confinement,
            node_id=node_id,
            max_depth=max_depth,
            entity=tools.talking.entity,
        )
        self._inviting = asyncio.Lock()
        self._assignments = Assignments(journal)
        self._pending: dict[str, Pending] = {}
        self._runs: dict[str, AssignmentRun] = {}
        self._tasks = OwnTasks()

    @property
    def active(self) -> int:
        """How many assignments are being worked on."""
        return len(self._runs)

    async def serve(self) -> None:
        """Do accepted work until cancelled; then end what is still running and unmount it."""
        await self._tasks.run(stop=self._stop_all)

    async def invite(self, message: Invite, peer: KnownPeer, *, source_host: str) -> Accept:
        """Answer INVITE: ``ExecutorApi.invite``. What a caller who gives up was promised is free at once."""
        promise = Promise()
        if not self._tasks.start("answering an invitation", self._answer, message, peer, source_host, promise):
            await self._answer(message, peer, source_host, promise)
        return await promise.wait()

    async def run(self, message: Start, peer: KnownPeer, *, source_host: str) -> AsyncGenerator[Progress | Done, None]:
        """Do the work of START: ``ExecutorApi.run``."""
        record = await self._assignments.owned(message.delegation_id, peer)
        try:
            # What was allowed at INVITE may be forbidden by now.
            await self._acceptance.admit(record, message, peer)
        except SubletError as error:
            # The peer's task ends with this refusal, so no other START can follow that would need what is held.
            pending = self._pending.get(record.id)
            if pending is not None and not pending.decided.is_set():
                pending.give_up(error)
            raise
        run = self._begin(await self._assignments.owned(message.delegation_id, peer), message, peer, source_host)
        try:
            with run.updates:
                async for update in run.updates:
                    yield update
        finally:
            run.stop(cancelled("the delegator no longer listens"))
            with anyio.CancelScope(shield=True):
                await run.finished.wait()
        if run.done is None:
            raise run.error or SubletError(ErrorCode.TASK_FAILED, "the task ended without a result")
        yield run.done

    async def renew(self, message: Start, peer: KnownPeer, *, source_host: str) -> Accept:
        """Go on with work that runs: ``ExecutorApi.renew``."""
        record = await self._assignments.owned(message.delegation_id, peer)
        run = self._runs.get(record.id)
        if run is None:
            raise not_running(record)
        # Shielded, so that what is journalled takes effect though the caller gives up.
        with anyio.CancelScope(shield=True):
            return await self._renew(run, message, peer, source_host)
        raise AssertionError  # a shield swallows nothing

    async def cancel(self, delegation_id: str, peer: KnownPeer) -> None:
        """Stop a delegation: ``ExecutorApi.cancel``."""
        record = await self._assignments.owned(delegation_id, peer)
        await self._stop(record.id, cancelled("the delegator cancelled the delegation"))

    async def wind_down(self, delegation_id: str, peer: KnownPeer, error: SubletError, seconds: float) -> None:
        """Let running work end soon, as failed: ``ExecutorApi.wind_down``."""
        record = await self._assignments.owned(delegation_id, peer)
        if (run := self._runs.get(record.id)) is not None:
            run.wind_down(error, seconds)
        else:
            await self._stop(record.id, error)

    async def check_owner(self, delegation_id: str, peer: KnownPeer) -> None:
        """Refuse strangers: ``ExecutorApi.check_owner``."""
        await self._assignments.owned(delegation_id, peer)

    async def end_peer(self, fingerprint: str, why: str) -> None:
        """Stop everything that is pending or running for the peer with that key."""
        await self._stop_each(self._assignments.of_peer(fingerprint), cancelled(why))

    # INVITE

    async def _answer(self, message: Invite, peer: KnownPeer, source_host: str, promise: Promise) -> None:
        """Keep ``promise``. It runs in a task of its own, so that it is done whole even if the caller gives up."""
        with promise.kept():
            async with self._inviting:
                known = await self._assignments.find(message.delegation_id)
                if known is not None:
                    promise.keep(self._again(known, message, peer), None)
                    return
                if await self._assignments.is_used(message.delegation_id):
                    raise used()
                agent = await self._acceptance.check(message, peer)
                transport = await asyncio.to_thread(choose_transport, message, self._tools.carriers, self._require)
                if promise.given_up:
                    return
                with anyio.CancelScope(shield=True):
                    record, pending = await self._accept(message, agent, peer, source_host, transport)
                promise.keep(record.accept, pending)

    async def check_invite(self, message: Invite, peer: KnownPeer) -> None:
        """Refuse another INVITE under an id that was used: ``ExecutorApi.check_invite``."""
        known = await self._assignments.find(message.delegation_id)
        if known is not None and (known.peer_fingerprint != peer.fingerprint or not same_invite(known.invite, message)):
            raise used()

    def _again(self, known: AssignmentRecord, message: Invite, peer: KnownPeer) -> Accept:
        owned = known.peer_fingerprint == peer.fingerprint
        if owned and known.id in self._pending and same_invite(known.invite, message):
            return known.accept
        raise used()

    async def _accept(
        self, message: Invite, agent: AgentConfig, peer: KnownPeer, source_host: str, transport: str
    ) -> tuple[AssignmentRecord, Pending]:
        """Reserve a slot and a place for the view and journal the assignment: all of it, or nothing is left of it."""
        owner = message.delegation_id
        mount_point: Path | None = None
        self._check_serving()
        seconds = start_seconds(message.lease.ttl_seconds)
        lost = self._slots.reserve(owner, seconds, holder=peer.fingerprint)
        if lost in self._pending:
            self._pending[lost].yield_slot()
        try:
            await self._journal.acquire(owner, "mount", {"delegation_id": owner})
            mount_point = await asyncio.to_thread(self._tools.carriers[transport].reserve, owner)
            key = asyncssh.generate_private_key("ssh-ed25519")
            accept = self._acceptance.accept(
                message,
                agent,
                transport=transport,
                mount_point=str(mount_point),
                public_key=key.export_public_key().decode().strip(),
                source_host=source_host,
            )
            now = rfc3339()
            record = AssignmentRecord(
                id=owner,
                peer=peer.name,
                peer_fingerprint=peer.fingerprint,
                agent=agent.id,
                invite=message,
                accept=accept,
                mount_point=str(mount_point),
                created_at=now,
                updated_at=now,
            )
            self._check_serving()
            await self._assignments.begin(record)
        except BaseException:
            await self._release(owner, transport, mount_point)
            raise
        pending = self._pending[owner] = Pending(key, seconds)
        held = self._tasks.start("holding an accepted invitation", self._hold, owner, pending)
        if not held:
            # The daemon began to stop during the last write, and has not seen this one.
            pending.give_up(stopping())
            await self._hold(owner, pending)
        return record, pending

    async def _hold(self, delegation_id: str, pending: Pending) -> None:
        """Keep an accepted INVITE until START takes it; free what it holds where that does not come."""
        with anyio.CancelScope(shield=True):
            await pending.wait()
            try:
                if self._pending.get(delegation_id) is pending:
                    del self._pending[delegation_id]
                    await self._conclude(delegation_id, pending.error, None)
            finally:
                pending.gone.set()

    # START

    def _begin(self, record: AssignmentRecord, message: Start, peer: KnownPeer, source_host: str) -> AssignmentRun:
        """Take what START finds waiting and start the work, all in one step, so that no second START finds it too.

        Raises:
            SubletError: ``DECLINED`` or ``START_EXPIRED``.
        """
        self._check_serving()
        pending = self._pending.get(record.id)
        if record.state is not AssignmentState.PENDING or pending is None or pending.decided.is_set():
            raise SubletError(
                ErrorCode.DECLINED,
                f"this delegation is not waiting for START; it is {record.state}",
                "Start with a new INVITE.",
            )
        with ExitStack() as slot:
            try:
                deadline = anyio.current_time() + seconds_left(record, message)
                slot.enter_context(self._slots.run(record.id))
            except SubletError as error:
                # The peer's task ends with this refusal, so no other START can follow that would need what is held.
                pending.give_up(error)
                raise
            del self._pending[record.id]
            pending.decided.set()
            # The address the peer called from is the only one that is ever dialled for it (DESIGN 9, SSRF).
            run = AssignmentRun(record, message, pending.key, source_host, deadline, self._tools)
            self._runs[record.id] = run
            work = run.work_of(node_id_of(peer.public_key))
            self._tasks.start("work for a peer", self._work, run, work, message, slot.pop_all())
        return run

    async def _work(self, run: AssignmentRun, work: Work, start: Start, slot: ExitStack) -> None:
        # Shielded: a stop of the daemon ends it in order, by ``_stop_all``.
        with slot, anyio.CancelScope(shield=True):
            failure: SubletError | None = None
            try:
                try:
                    await self._started(run, start)
                    self._tools.talking.begins(work)
                    try:
                        await run.work()
                    finally:
                        self._tools.talking.ends(work, run.outcome.summary if run.outcome is not None else None)
                except Exception:
                    # Whatever it is, it ends this work alone, and frees what this work holds.
                    log.exception("work for a peer broke", delegation_id=run.id)
                    run.broke()
                failure = await self._conclude(run.id, run.error, run.outcome)
            finally:
                self._runs.pop(run.id, None)
                run.finish(failure)

    async def _started(self, run: AssignmentRun, start: Start) -> None:
        expires_at = start.lease.expires_at
        try:
            await self._assignments.advance(
                self._assignments.under_way[run.id],
                AssignmentEvent.START,
                expires_at=expires_at,
                generation=start.sublet.generation,
                access_mode=start.lease.access_mode,
            )
        except SubletError as error:
            run.stop(error)
            return
        record = self._assignments.under_way[run.id]
        log.info("work begins", **names_of(record), access_mode=record.access_mode, expires_at=expires_at)

    async def _renew(self, run: AssignmentRun, message: Start, peer: KnownPeer, source_host: str) -> Accept:
        async with run.renewing:
            record = self._assignments.under_way.get(run.id)
            if record is None or run.over:
                raise not_running(record)
            if message.sublet.follow_up is not None:
                run.follow_ups.check(message.sublet.follow_up)
            now = anyio.current_time()
            worked, left = now - run.began, run.deadline.at - now
            seconds, expires_at = await self._acceptance.renewal(record, message, peer, worked=worked, left=left)
            if run.over:
                raise not_running(record)
            await self._assignments.note(record, generation=message.sublet.generation, expires_at=expires_at)
            run.renew(message, source_host, now + seconds)
        log.info("work is renewed", **names_of(record), generation=message.sublet.generation, expires_at=expires_at)
        constraints = record.accept.remote_constraints.model_copy(update={"max_ttl_seconds": max(1, int(seconds))})
        return record.accept.model_copy(update={"remote_constraints": constraints})

    # The end

    async def _conclude(
        self, delegation_id: str, error: SubletError | None, outcome: Outcome | None
    ) -> SubletError | None:
        """Journal how it ended and free everything it holds; return why it could not be journalled, if so."""
        record = self._assignments.under_way[delegation_id]
        ended = str(error.code) if error is not None else "done"
        log.info("work ends", **names_of(record), ended=ended, exit_code=outcome.exit_code if outcome else None)
        failure = None
        freed = await self._freed(record.accept.sublet.transport, Path(record.mount_point))
        try:
            await self._assignments.advance(
                record,
                AssignmentEvent.DONE if error is None else AssignmentEvent.FAIL,
                Held(gives_back=()) if freed else NOTHING,
                error=error_view(error) if error else None,
                outcome=outcome.reason if outcome else None,
                exit_code=outcome.exit_code if outcome else None,
            )
        except SubletError as broken:
            log.error("the end could not be journalled", delegation_id=delegation_id, reason=str(broken))
            failure = broken
        self._runs.pop(delegation_id, None)
        try:
            await self._assignments.forget_oldest(record)
        except SubletError as broken:
            log.error("what is kept of a peer could not be counted", peer=record.peer, reason=str(broken))
        self._assignments.under_way.pop(delegation_id, None)
        self._slots.release(delegation_id)
        if failure is not None and freed:
            await self._given_back(delegation_id)
        return failure

    async def _release(self, delegation_id: str, transport: str, mount_point: Path | None) -> None:
        """Free what a delegation holds. What can't be freed stays journalled for the next start."""
        self._assignments.under_way.pop(delegation_id, None)
        self._slots.release(delegation_id)
        if await self._freed(transport, mount_point):
            await self._given_back(delegation_id)

    async def _given_back(self, delegation_id: str) -> None:
        try:
            await self._journal.release_owned(delegation_id)
        except SubletError as error:
            log.error("what was given back could not be journalled", delegation_id=delegation_id, reason=str(error))

    async def _freed(self, transport: str, mount_point: Path | None) -> bool:
        """Remove the reserved place of a view, and tell whether nothing is there any more."""
        try:
            return mount_point is None or await asyncio.to_thread(self._tools.carriers[transport].release, mount_point)
        except (OSError, SubletError) as error:
            log.error("a mount point was not freed", mount_point=str(mount_point), reason=str(error))
            return False

    async def _stop(self, delegation_id: str, error: SubletError) -> None:
        if (run := self._runs.get(delegation_id)) is not None:
            run.stop(error)
            await run.finished.wait()
        elif (pending := self._pending.get(delegation_id)) is not None:
            pending.give_up(error)
            await pending.gone.wait()

    async def _stop_each(self, delegation_ids: Iterable[str], error: SubletError) -> None:
        async with anyio.create_task_group() as group:
            for delegation_id in delegation_ids:
                group.start_soon(self._stop, delegation_id, error)

    async def _stop_all(self) -> None:
        with anyio.move_on_after(STOP_SECONDS):
            await self._stop_each([*self._runs, *self._pending], stopping())
        for run in self._runs.values():
            run.abandon()

    def _check_serving(self) -> None:
        if not self._tasks.open:
            raise SubletError(
                ErrorCode.DECLINED, "this executor takes no work: it is starting or stopping", "Try again in a moment."
            )
