"""The executor's service: answers INVITE, does the work of START, stops on cancel (AWCP 7, DESIGN 4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import asyncssh

from sublet.daemon.api import KnownPeer
from sublet.daemon.assignment_run import AssignmentRun, ExecutorTools, expired
from sublet.daemon.journal import Journal
from sublet.daemon.records import AssignmentRecord, error_view
from sublet.daemon.times import rfc3339, unix_seconds
from sublet.policy.engine import Policy
from sublet.policy.model import Action, Resource, Subject
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.lifecycle import ASSIGNMENT_TABLE, AssignmentEvent, AssignmentState, advance
from sublet.protocol.messages import (
    Accept,
    AcceptExtension,
    AccessMode,
    Done,
    Invite,
    Progress,
    RemoteConstraints,
    RemoteMount,
    ReverseEndpoint,
    SandboxProfile,
    Start,
)
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.model import Outcome
from sublet.supervisor.slots import RESERVED_SECONDS, Slots
from sublet.workspace.requirements import require_mount

PENDING_SECONDS = RESERVED_SECONDS
"""How long an accepted INVITE waits for its START before its slot is given to others."""
STOP_SECONDS = 4.0
"""How long a stop of the daemon waits for running work to be ended and unmounted."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What an accepted INVITE holds in memory until its START: the key never touches the disk."""

    key: asyncssh.SSHKey
    scope: anyio.CancelScope


class Executor:
    """Implements ``ExecutorApi``; ``serve`` must run for the work to be done."""

    def __init__(
        self,
        *,
        journal: Journal,
        policy: Policy,
        slots: Slots,
        tools: ExecutorTools,
        agents: Callable[[], Sequence[AgentConfig]],
        max_ttl_seconds: Callable[[], int],
        reverse_port: Callable[[str], int | None],
        enforced: frozenset[str],
    ) -> None:
        self._journal = journal
        self._policy = policy
        self._slots = slots
        self._tools = tools
        self._agents = agents
        self._max_ttl_seconds = max_ttl_seconds
        self._reverse_port = reverse_port
        self._enforced = enforced
        self._inviting = asyncio.Lock()
        self._records: dict[str, AssignmentRecord] = {}
        self._pending: dict[str, Pending] = {}
        self._runs: dict[str, AssignmentRun] = {}
        self._group: asyncio.TaskGroup | None = None

    @property
    def active(self) -> int:
        """How many assignments are being worked on."""
        return len(self._runs)

    async def serve(self) -> None:
        """Do accepted work until cancelled; then end what is still running and unmount it."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await anyio.sleep_forever()
            finally:
                self._group = None
                with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_SECONDS):
                    await self._stop_all()

    async def invite(self, message: Invite, peer: KnownPeer, *, source_host: str) -> Accept:
        """Answer INVITE: ``ExecutorApi.invite``."""
        async with self._inviting:
            known = await self._find(message.delegation_id)
            if known is not None:
                return self._again(known, message, peer)
            agent = self._agent(message)
            mode, ttl = self._grant(message, agent, peer)
            await asyncio.to_thread(require_mount)
            return await self._accept(message, agent, peer, mode, ttl, source_host)

    async def run(self, message: Start, peer: KnownPeer, *, source_host: str) -> AsyncIterator[Progress | Done]:
        """Do the work of START: ``ExecutorApi.run``."""
        record = await self._owned(message.delegation_id, peer)
        pending = self._pending.get(record.id)
        if record.state is not AssignmentState.PENDING or pending is None or self._group is None:
            raise SubletError(
                ErrorCode.DECLINED,
                f"this delegation is not waiting for START; it is {record.state}",
                "Start with a new INVITE.",
            )
        seconds = self._check_start(record, message)
        with self._slots.run(record.id):
            del self._pending[record.id]
            pending.scope.cancel()
            await self._save(record, AssignmentEvent.START, expires_at=message.lease.expires_at)
            # The address the peer called from is the only one that is ever dialled for it (DESIGN 9, SSRF).
            run = AssignmentRun(self._records[record.id], message, pending.key, source_host, self._tools)
            self._runs[record.id] = run
            self._group.create_task(run.work(seconds, self._conclude))
            try:
                async for update in run.updates:
                    yield update
            finally:
                run.stop(_cancelled("the delegator no longer listens"))
                with anyio.CancelScope(shield=True):
                    await run.finished.wait()
        if run.error is not None:
            raise run.error

    async def cancel(self, delegation_id: str, peer: KnownPeer) -> None:
        """Stop a delegation: ``ExecutorApi.cancel``."""
        record = await self._owned(delegation_id, peer)
        run = self._runs.get(record.id)
        # A lease that ends is cancelled by the delegator as well, perhaps before our own clock says so.
        over = run is not None and run.is_over()
        await self._stop(record.id, expired() if over else _cancelled("the delegator cancelled the delegation"))

    async def check_owner(self, delegation_id: str, peer: KnownPeer) -> None:
        """Refuse strangers: ``ExecutorApi.check_owner``."""
        await self._owned(delegation_id, peer)

    # INVITE

    def _again(self, known: AssignmentRecord, message: Invite, peer: KnownPeer) -> Accept:
        if known.peer_fingerprint == peer.fingerprint and known.id in self._pending and _same(known.invite, message):
            return known.accept
        raise SubletError(ErrorCode.DECLINED, "this delegation id was used before", "Invite again with a new id.")

    def _agent(self, message: Invite) -> AgentConfig:
        agents = self._agents()
        wanted = message.sublet.agent
        for agent in agents:
            if wanted is None or agent.id == wanted:
                return agent
        offered = ", ".join(agent.id for agent in agents) or "none"
        raise SubletError(ErrorCode.DECLINED, f"there is no agent {wanted!r} here", f"Offered: {offered}.")

    def _grant(self, message: Invite, agent: AgentConfig, peer: KnownPeer) -> tuple[AccessMode, int]:
        """Ask policy, and return the access and the seconds that it grants: at most what was asked for."""
        transport = message.requirements.transport
        if transport != "sshfs":
            raise SubletError(
                ErrorCode.DEP_MISSING, f"transport {transport!r} is not served here", "This executor mounts by sshfs."
            )
        decision = self._policy.decide(
            Subject("peer", peer.name),
            Action.ASSIGNMENT_ACCEPT,
            Resource(agent.id, {"access_mode": message.lease.access_mode, "ttl_seconds": message.lease.ttl_seconds}),
        )
        if not decision.allowed:
            raise SubletError(ErrorCode.DECLINED, decision.reason, decision.hint)
        return message.lease.access_mode, min(message.lease.ttl_seconds, self._max_ttl_seconds())

    async def _accept(
        self, message: Invite, agent: AgentConfig, peer: KnownPeer, mode: AccessMode, ttl: int, source_host: str
    ) -> Accept:
        self._slots.reserve(message.delegation_id)
        try:
            owner = message.delegation_id
            await self._journal.acquire(owner, "mount", {"delegation_id": owner})
            mount_point = await asyncio.to_thread(self._tools.mounts.reserve, owner)
            key = asyncssh.generate_private_key("ssh-ed25519")
            reverse = self._reverse_port(source_host)
            accept = Accept(
                delegation_id=owner,
                remote_mount=RemoteMount(mount_point=str(mount_point)),
                remote_constraints=RemoteConstraints(
                    accepted_access_mode=mode,
                    max_ttl_seconds=ttl,
                    sandbox_profile=SandboxProfile(
                        cwd_only=agent.sandbox.cwd_only,
                        allow_network=agent.allow_network,
                        allow_exec=agent.sandbox.allow_exec,
                    ),
                    public_key=key.export_public_key().decode().strip(),
                ),
                sublet=AcceptExtension(
                    reverse=ReverseEndpoint(port=reverse) if reverse else None,
                    sandbox_enforced=sorted(self._enforced),
                ),
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
            await self._journal.save_assignment(record, EventKind.ASSIGNMENT_STATE, {"state": str(record.state)})
        except BaseException:
            self._slots.release(message.delegation_id)
            raise
        self._records[owner] = record
        self._wait_for_start(owner, key)
        return accept

    def _wait_for_start(self, delegation_id: str, key: asyncssh.SSHKey) -> None:
        scope = anyio.CancelScope()
        self._pending[delegation_id] = Pending(key, scope)

        async def lapse() -> None:
            with scope:
                await asyncio.sleep(PENDING_SECONDS)
                error = SubletError(
                    ErrorCode.DECLINED, f"no START came within {PENDING_SECONDS:.0f} s", "Invite again."
                )
                await self._stop(delegation_id, error)

        if self._group is not None:
            self._group.create_task(lapse())

    # START

    def _check_start(self, record: AssignmentRecord, message: Start) -> float:
        """Return the seconds that are left, never more than we accepted.

        Raises:
            SubletError: ``START_EXPIRED`` or ``DECLINED`` (AWCP 4.3, 4.5).
        """
        accepted = record.accept.remote_constraints
        if accepted.accepted_access_mode == "ro" and message.lease.access_mode == "rw":
            raise SubletError(ErrorCode.DECLINED, "START widens the access from ro to rw", "Send what was accepted.")
        remaining = message.sublet.remaining_seconds
        try:
            left = unix_seconds(message.lease.expires_at) - time.time()
        except ValueError:
            raise SubletError(
                ErrorCode.DECLINED, "lease.expires_at is no RFC 3339 time with a zone", "Send one in UTC."
            ) from None
        # Our clocks may differ by more than the lease is long, so what the peer counted wins where it says it.
        seconds = float(remaining) if remaining is not None else left
        if seconds <= 0:
            raise SubletError(ErrorCode.START_EXPIRED, "the lease was over before START arrived", "Delegate again.")
        if message.sublet.host_key is None:
            raise SubletError(
                ErrorCode.AUTH_FAILED,
                "START names no host key, so the server could be anybody",
                "Send sublet.host_key.",
            )
        return min(seconds, float(accepted.max_ttl_seconds or seconds))

    async def _conclude(self, delegation_id: str, error: SubletError | None, outcome: Outcome | None) -> None:
        record = self._records[delegation_id]
        self._runs.pop(delegation_id, None)
        event = AssignmentEvent.DONE if error is None else AssignmentEvent.FAIL
        await self._save(
            record,
            event,
            error=error_view(error) if error else None,
            outcome=outcome.reason if outcome else None,
            exit_code=outcome.exit_code if outcome else None,
        )
        await self._release(delegation_id)

    # The end

    async def _stop(self, delegation_id: str, error: SubletError) -> None:
        run = self._runs.get(delegation_id)
        if run is not None:
            run.stop(error)
            await run.finished.wait()
            return
        pending = self._pending.pop(delegation_id, None)
        if pending is None:
            return
        await self._save(self._records[delegation_id], AssignmentEvent.FAIL, error=error_view(error))
        await asyncio.to_thread(self._tools.mounts.release, Path(self._records[delegation_id].mount_point))
        await self._release(delegation_id)
        pending.scope.cancel()

    async def _stop_all(self) -> None:
        error = _cancelled("the executor's daemon was stopped")
        for delegation_id in [*self._runs, *self._pending]:
            await self._stop(delegation_id, error)

    async def _release(self, delegation_id: str) -> None:
        self._slots.release(delegation_id)
        await self._journal.release_owned(delegation_id)
        self._records.pop(delegation_id, None)

    # Records

    async def _find(self, delegation_id: str) -> AssignmentRecord | None:
        return self._records.get(delegation_id) or await self._journal.load_assignment(delegation_id)

    async def _owned(self, delegation_id: str, peer: KnownPeer) -> AssignmentRecord:
        record = await self._find(delegation_id)
        if record is None or record.peer_fingerprint != peer.fingerprint:
            raise SubletError(ErrorCode.DECLINED, "no such delegation of yours is known here", "Start with INVITE.")
        return record

    async def _save(self, record: AssignmentRecord, event: AssignmentEvent, **changes: object) -> None:
        state = advance(ASSIGNMENT_TABLE, record.state, event)
        changed = record.model_copy(update={**changes, "state": state, "updated_at": rfc3339()})
        await self._journal.save_assignment(changed, EventKind.ASSIGNMENT_STATE, {"state": str(state)})
        self._records[record.id] = changed


def _same(first: Invite, second: Invite) -> bool:
    """Tell whether two INVITEs ask for the same, whatever their signatures."""
    return first.model_copy(update={"sublet": second.sublet}) == second and first.sublet.agent == second.sublet.agent


def _cancelled(why: str) -> SubletError:
    return SubletError(ErrorCode.CANCELLED, why, "What was written until then stays; see the audit.")
