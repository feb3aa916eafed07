"""The executor's service: answers INVITE, does the work of START, stops on cancel (AWCP 7, DESIGN 4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import partial

import anyio
import asyncssh
import structlog

from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.output_log import OutputLog
from sublet.daemon.tasks.own_tasks import OwnTasks
from sublet.daemon.working.acceptance import Acceptance, choose_transport
from sublet.daemon.working.assignments import Assignments
from sublet.daemon.working.decisions import Decisions, Reply, accepted, check
from sublet.daemon.working.executor_tools import ExecutorTools
from sublet.daemon.working.pending import Promise, left
from sublet.daemon.working.performing import Performing
from sublet.daemon.working.refusals import broken, stopping
from sublet.protocol.assignment import phases
from sublet.protocol.assignment.events import (
    CallerLeft,
    InviteCame,
    InvitePrepared,
    InviteRefused,
    PolicySaid,
    RenewalCame,
    StartCame,
    StopCame,
    TimePassed,
    WindDownCame,
)
from sublet.protocol.assignment.granting import same_invite, start_seconds
from sublet.protocol.assignment.outputs import AskPolicy, Consider
from sublet.protocol.assignment.phases import Phase
from sublet.protocol.assignment.refusals import cancelled, slot_lost, unknown, used
from sublet.protocol.errors import SubletError
from sublet.protocol.messages import Accept, Done, Invite, Progress, Start
from sublet.stop_time import within
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.confinement import Confinement
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
        max_depth: int,
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
        self._tasks = OwnTasks()
        self._performing = Performing(journal, self._assignments, slots, tools, self._tasks)
        self._decisions = self._performing.under_way
        self._runs = self._performing.runs

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
        decisions = await self._known(message.delegation_id, peer)
        self._performing.check_serving()
        await self._decide(decisions, StartCame(message, peer.fingerprint), peer, source_host)
        run = decisions.run
        if run is None:  # it was refused, and that could not be journalled
            raise broken()
        printed = OutputLog(self._journal, message.delegation_id)
        try:
            with run.updates:
                async for update in run.updates:
                    if update.text:
                        await _kept(printed, update)
                    yield update
        finally:
            with anyio.CancelScope(shield=True):
                await decisions.feed(StopCame(cancelled("the delegator no longer listens")))
                await run.finished.wait()
        if run.done is None:
            raise run.error or broken()
        yield run.done

    async def renew(self, message: Start, peer: KnownPeer, *, source_host: str) -> Accept:
        """Go on with work that runs: ``ExecutorApi.renew``."""
        decisions = await self._known(message.delegation_id, peer)
        came = RenewalCame(message, peer.fingerprint, self._acceptance.longest)
        # Shielded, so that what is journalled takes effect though the caller gives up.
        with anyio.CancelScope(shield=True):
            return accepted(await self._decide(decisions, came, peer, source_host))
        raise AssertionError  # a shield swallows nothing

    async def cancel(self, delegation_id: str, peer: KnownPeer) -> None:
        """Stop a delegation: ``ExecutorApi.cancel``."""
        error = cancelled("the delegator cancelled the delegation")
        await self._stop(await self._known(delegation_id, peer), StopCame(error, peer.fingerprint))

    async def wind_down(self, delegation_id: str, peer: KnownPeer, error: SubletError, seconds: float) -> None:
        """Let running work end soon, as failed: ``ExecutorApi.wind_down``."""
        decisions = await self._known(delegation_id, peer)
        check(await decisions.feed(WindDownCame(error, seconds, peer.fingerprint)))

    async def check_owner(self, delegation_id: str, peer: KnownPeer) -> None:
        """Refuse strangers: ``ExecutorApi.check_owner``."""
        await self._known(delegation_id, peer)

    async def end_peer(self, fingerprint: str, why: str) -> None:
        """Stop everything that is pending or running for the peer with that key."""
        await self._stop_each(self._assignments.of_peer(fingerprint), cancelled(why))

    async def stop_here(self, delegation_id: str) -> None:
        """Stop what is done here under that id, as the owner of this daemon; what is over stays as it is."""
        if (decisions := await self._find(delegation_id)) is not None:
            await self._stop(decisions, StopCame(cancelled("the owner of the executor stopped the work")))

    # INVITE

    async def _answer(self, message: Invite, peer: KnownPeer, source_host: str, promise: Promise) -> None:
        """Keep ``promise``. It runs in a task of its own, so that it is done whole even if the caller gives up."""
        with promise.kept():
            async with self._inviting:
                decisions = await self._find(message.delegation_id) or self._new(message.delegation_id, peer)
                replies = await decisions.feed(InviteCame(message, peer.fingerprint))
                leave = None
                if any(isinstance(reply, Consider) for reply in replies):
                    leave = partial(decisions.feed, CallerLeft(left()))
                    replies = await self._consider(decisions, message, peer, source_host, promise)
                await promise.keep(accepted(replies), leave)

    async def check_invite(self, message: Invite, peer: KnownPeer) -> None:
        """Refuse another INVITE under an id that was used: ``ExecutorApi.check_invite``."""
        known = await self._assignments.find(message.delegation_id)
        if known is not None and (known.peer_fingerprint != peer.fingerprint or not same_invite(known.invite, message)):
            raise used()

    async def _consider(
        self, decisions: Decisions, message: Invite, peer: KnownPeer, source_host: str, promise: Promise
    ) -> tuple[Reply, ...]:
        """Ask policy for an INVITE, and hold what it needs."""
        try:
            if await self._assignments.is_used(message.delegation_id):
                raise used()
            agent = await self._acceptance.check(message, peer)
            transport = await asyncio.to_thread(choose_transport, message, self._tools.carriers, self._require)
            if promise.given_up:
                raise left()
        except SubletError as error:
            return await decisions.feed(InviteRefused(error))
        with anyio.CancelScope(shield=True):
            return await self._accept(decisions, message, agent, source_host, transport)
        raise AssertionError  # a shield swallows nothing

    async def _accept(
        self, decisions: Decisions, message: Invite, agent: AgentConfig, source_host: str, transport: str
    ) -> tuple[Reply, ...]:
        """Reserve a slot and a place for the view and accept: all of it, or nothing is left of it."""
        owner = message.delegation_id
        held = decisions.held
        held.agent, held.transport = agent.id, transport
        seconds = start_seconds(message.lease.ttl_seconds)
        try:
            self._performing.check_serving()
            lost = self._slots.reserve(owner, seconds, holder=decisions.peer.fingerprint)
        except SubletError as error:
            return await decisions.feed(InviteRefused(error))
        if lost in self._decisions:
            await self._decisions[lost].feed(StopCame(slot_lost()))
        try:
            await self._journal.resources.acquire(owner, "mount", {"delegation_id": owner})
            held.mount_point = await asyncio.to_thread(self._tools.carriers[transport].reserve, owner)
            held.key = asyncssh.generate_private_key("ssh-ed25519")
            accept = self._acceptance.accept(
                message,
                agent,
                transport=transport,
                mount_point=str(held.mount_point),
                public_key=held.key.export_public_key().decode().strip(),
                source_host=source_host,
            )
            self._performing.check_serving()
        except SubletError as error:
            return await decisions.feed(InviteRefused(error, holds=True))
        except BaseException:
            await self._performing.free(decisions)
            raise
        replies = await decisions.feed(InvitePrepared(accept, seconds))
        if decisions.phase is not Phase.WAITING:
            return replies
        if not self._tasks.start("holding an accepted invitation", self._hold, decisions):
            # The daemon began to stop during the last write, and has not seen this one.
            await decisions.feed(StopCame(stopping()))
        return replies

    async def _hold(self, decisions: Decisions) -> None:
        """Keep an accepted INVITE until START takes it; free what it holds where that does not come."""
        with anyio.CancelScope(shield=True):
            while decisions.phase is Phase.WAITING:
                with anyio.move_on_after(phases.wake_at(decisions.state) - anyio.current_time()):
                    await decisions.decided.wait()
                await decisions.feed(TimePassed())

    # START

    async def _decide(
        self, decisions: Decisions, came: StartCame | RenewalCame, peer: KnownPeer, source_host: str
    ) -> tuple[Reply, ...]:
        """Have a START decided on, by policy too; what was allowed at INVITE may be forbidden by now.

        Raises:
            SubletError: ``DECLINED``, ``START_EXPIRED`` or ``AUTH_FAILED``.
        """
        replies = await decisions.feed(came, source_host)
        check(replies)
        for question in replies:
            if isinstance(question, AskPolicy):
                error: SubletError | None = None
                try:
                    mode = question.start.lease.access_mode
                    await self._acceptance.admit(decisions.journalled.agent, peer, mode, question.ttl_seconds)
                except SubletError as refusal:
                    error = refusal
                said = PolicySaid(question, error, self._acceptance.longest)
                replies = await decisions.feed(said, source_host)
                check(replies)
        return replies

    # Finding, and stopping

    def _new(self, delegation_id: str, peer: KnownPeer) -> Decisions:
        return Decisions(delegation_id, peer, self._performing.perform)

    async def _find(self, delegation_id: str) -> Decisions | None:
        """Return what is decided of a delegation, also where it is over; None where it is not known."""
        if (under_way := self._decisions.get(delegation_id)) is not None:
            return under_way
        record = await self._assignments.find(delegation_id)
        if (under_way := self._decisions.get(delegation_id)) is not None or record is None:
            return under_way
        return Decisions(delegation_id, None, self._performing.perform, record)

    async def _known(self, delegation_id: str, peer: KnownPeer) -> Decisions:
        """Return what is decided of a delegation of ``peer``.

        Raises:
            SubletError: ``DECLINED`` for one that is not its own; whether there is one is not told.
        """
        decisions = await self._find(delegation_id)
        if decisions is None or decisions.assignment.owner != peer.fingerprint:
            raise unknown()
        return decisions

    async def _stop(self, decisions: Decisions, event: StopCame) -> None:
        check(await decisions.feed(event))
        if decisions.run is not None:
            await decisions.run.finished.wait()

    async def _stop_each(self, delegation_ids: Iterable[str], error: SubletError) -> None:
        async with anyio.create_task_group() as group:
            for delegation_id in delegation_ids:
                if (decisions := self._decisions.get(delegation_id)) is not None:
                    group.start_soon(self._stop, decisions, StopCame(error))

    async def _stop_all(self) -> None:
        with anyio.move_on_after(within(STOP_SECONDS)):
            await self._stop_each([*self._decisions], stopping())
        for run in self._runs.values():
            run.abandon()


async def _kept(printed: OutputLog, update: Progress) -> None:
    """Keep what the agent prints for the owner of this daemon; the lender is told of it all the same."""
    try:
        await printed.append(update.stream, update.text, update.dropped_chars)
    except Exception:
        log.exception("what an agent printed can't be kept here", delegation_id=update.delegation_id)
