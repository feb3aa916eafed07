"""One assignment from START to its end, on the executor's side: mount, work, unmount (AWCP 3, DESIGN 4)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import asyncssh
import structlog

from sublet.daemon.records import AssignmentRecord
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Done, DoneExtension, Progress, Start
from sublet.supervisor.model import Job, Outcome, Output, Provider
from sublet.workspace.connection import connect, connect_over
from sublet.workspace.model import MountTarget
from sublet.workspace.mounts import Mounts
from sublet.workspace.reverse import ReverseAcceptor

DIRECT_CONNECT_SECONDS = 2.0
"""How long the direct way is tried before the delegator is asked to dial us."""
REVERSE_WAIT_SECONDS = 15.0
"""How long we wait for the delegator to dial."""
MAX_PENDING_UPDATES = 256
"""Updates that may wait for the peer's stream; what comes meanwhile is dropped and counted."""
LAST_UPDATE_SECONDS = 1.0
"""How long the last update waits for room; the peer re-reads the end from the task's state all the same."""

log = structlog.get_logger(__name__)

Update = Progress | Done
Conclude = Callable[[str, SubletError | None, Outcome | None], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ExecutorTools:
    """What every assignment works with; the composition root makes it once."""

    mounts: Mounts
    reverse: ReverseAcceptor
    provider: Callable[[str], Provider]
    scratch_root: Path


class AssignmentRun:
    """Does the work of one START.

    ``updates`` yields progress and then DONE; where it ends without DONE, ``error`` says why.
    """

    def __init__(
        self, record: AssignmentRecord, start: Start, key: asyncssh.SSHKey, host: str, tools: ExecutorTools
    ) -> None:
        self.finished = asyncio.Event()
        self.error: SubletError | None = None
        self._record = record
        self._start = start
        self._key = key
        self._host = host
        self._tools = tools
        self._scope = anyio.CancelScope()
        self._stopped: SubletError | None = None
        self._dropped = 0
        self._send, self.updates = anyio.create_memory_object_stream[Update](MAX_PENDING_UPDATES)

    def stop(self, error: SubletError) -> None:
        """End the work; the reason told is the first one given."""
        if self._stopped is None:
            self._stopped = error
        self._scope.cancel()

    async def work(self, seconds: float, conclude: Conclude) -> None:
        """Mount, run the provider and unmount, all within ``seconds``.

        Args:
            seconds: what is left of the lease, counted from now on the monotonic clock.
            conclude: journals how it ended; awaited before the peer hears of it.
        """
        done: Done | None = None
        outcome: Outcome | None = None
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            with self._scope, anyio.move_on_after(seconds):
                outcome = await self._mounted(began + seconds)
            if self._stopped is not None:
                raise self._stopped
            if outcome is None or outcome.reason == "timeout":
                raise expired()
            done = self._done(outcome, int((clock() - began) * 1000))
        except SubletError as error:
            self.error = self._stopped or error
        except Exception:
            log.exception("assignment broke", delegation_id=self._record.id)
            self.error = SubletError(ErrorCode.TASK_FAILED, "the executor had an internal error", "See its log.")
        with anyio.CancelScope(shield=True):
            await conclude(self._record.id, self.error, outcome)
            if done is not None:
                with anyio.move_on_after(LAST_UPDATE_SECONDS):
                    await self._send.send(done)
            self._send.close()
            self.finished.set()

    async def _mounted(self, deadline: float) -> Outcome:
        """Connect, mount, work and unmount; a flush that fails makes the whole task fail (DESIGN 4.1)."""
        self._say("mounting")
        connection = await self._connect()
        try:
            mount_point = Path(self._record.mount_point)
            mount = await self._tools.mounts.attach(mount_point, connection, self._start.mount.export_locator)
            flushed = False
            try:
                self._say("running")
                outcome = await self._provide(mount_point, deadline)
                self._say("unmounting")
            finally:
                with anyio.CancelScope(shield=True):
                    flushed = await mount.detach()
        finally:
            connection.abort()
        if not flushed and outcome.reason == "done" and self._start.lease.access_mode == "rw":
            raise SubletError(
                ErrorCode.TASK_FAILED,
                "the work was done, but its last writes did not all reach the delegator",
                "Look at the audit for what arrived, then delegate again.",
            )
        return outcome

    async def _connect(self) -> asyncssh.SSHClientConnection:
        """Reach the delegator's server directly, or ask it to dial us (DESIGN 4.6)."""
        mount = self._start.mount
        assert self._start.sublet.host_key is not None
        with self._tools.reverse.expect(mount.endpoint.user) as expected:
            target = MountTarget(self._host, mount.endpoint.port, mount.endpoint.user, self._start.sublet.host_key)
            if self._start.sublet.data_path == "direct":
                try:
                    return await connect(target, self._key, DIRECT_CONNECT_SECONDS)
                except SubletError as error:
                    if error.code == ErrorCode.AUTH_FAILED:
                        raise
                    log.info("no direct way to the delegator", reason=error.message)
                if self._record.accept.sublet.reverse is None:
                    raise SubletError(
                        ErrorCode.MOUNT_FAILED,
                        f"the delegator's SFTP port {target.port} can't be reached at {target.host}",
                        "Let the delegator listen where this machine reaches it (sublet up --sftp), or let the "
                        "delegator reach this machine's SFTP port.",
                    )
            self._say("need_reverse")
            socket = await expected.wait(REVERSE_WAIT_SECONDS)
            return await connect_over(socket, target, self._key)

    async def _provide(self, mount_point: Path, deadline: float) -> Outcome:
        scratch = self._tools.scratch_root / self._record.id
        await asyncio.to_thread(scratch.mkdir, mode=0o700, parents=True, exist_ok=True)
        try:
            job = Job(
                delegation_id=self._record.id,
                description=self._record.invite.task.description,
                prompt=self._record.invite.task.prompt,
                access_mode=self._start.lease.access_mode,
                workspace=mount_point / "workspace",
                meta=mount_point / "meta",
                scratch=scratch,
                mount_point=mount_point,
                remaining_seconds=max(0.0, deadline - asyncio.get_running_loop().time()),
                expires_at=self._start.lease.expires_at,
            )
            return await self._tools.provider(self._record.agent).run(job, self._report)
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    def _done(self, outcome: Outcome, duration_ms: int) -> Done:
        """Return the DONE for ``outcome``.

        Raises:
            SubletError: ``TASK_FAILED`` where the work failed, with the end of what the agent said.
        """
        if outcome.reason != "done":
            how = f"exit code {outcome.exit_code}" if outcome.reason == "failed" else outcome.reason
            raise SubletError(
                ErrorCode.TASK_FAILED,
                f"the agent ended with {how}: {outcome.summary[-2_000:]}".rstrip(": "),
                outcome.detail or "See the output (sublet output) for what it printed.",
            )
        return Done(
            delegation_id=self._record.id,
            final_summary=outcome.summary,
            sublet=DoneExtension(exit_code=outcome.exit_code, duration_ms=duration_ms),
        )

    def _say(self, phase: str) -> None:
        self._update(Progress.model_validate({"delegation_id": self._record.id, "phase": phase}))

    def _report(self, output: Output) -> None:
        self._update(
            Progress(
                delegation_id=self._record.id,
                phase="running",
                stream=output.stream,
                text=output.text,
                dropped_chars=output.dropped_chars + self._dropped,
            )
        )

    def _update(self, update: Progress) -> None:
        try:
            self._send.send_nowait(update)
            self._dropped = 0
        except anyio.WouldBlock:
            self._dropped += len(update.text) + update.dropped_chars


def expired() -> SubletError:
    """Return the error of a lease that ended while the work ran (AWCP 4.5)."""
    return SubletError(
        ErrorCode.EXPIRED,
        "the lease ended while the task was running; the agent was stopped and the directory unmounted",
        "Delegate again with a longer lease.",
    )
