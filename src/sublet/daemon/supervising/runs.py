"""One request at work: in a private directory of its own, and gone with whoever asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream

from sublet.daemon.tasks.own_tasks import OwnTasks
from sublet.daemon.times import rfc3339
from sublet.disk.private_dir import make_fresh
from sublet.disk.removal import is_removed
from sublet.protocol.chain import Chain
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.ids import new_delegation_id
from sublet.supervisor.agent import UnifiedAgentOutput
from sublet.supervisor.job import Deadline, Job, JobResource, Output, Report

MAX_PENDING_PIECES = 256
HEARTBEAT_SECONDS = 15.0
MAX_RUNS = 256
"""Requests that may be under way at once, those that only wait for a slot or a turn included."""

log = structlog.get_logger(__name__)

Work = Callable[[Job, Report], Awaitable[UnifiedAgentOutput]]


class Runs:
    """Keeps what is at work; ``serve`` must run for anything to happen, and ends it all when cancelled.

    Args:
        scratch_root: below which each has its directory.
    """

    def __init__(self, scratch_root: Path) -> None:
        self._scratch_root = scratch_root
        self._tasks = OwnTasks()
        self._under_way = 0

    @property
    def serving(self) -> bool:
        """Whether anything can be worked on."""
        return self._tasks.open

    async def serve(self) -> None:
        """Run what is asked until cancelled, and end it then."""
        await self._tasks.run()

    async def run(
        self, text: str, chain: Chain, seconds: float, work: Work
    ) -> AsyncGenerator[Output | UnifiedAgentOutput]:
        """Do ``work`` and yield what is said meanwhile, then what it returns.

        Args:
            text: the prompt.
            chain: who called until here.
            seconds: how long it may take.
            work: gets the job and where to report to.

        Raises:
            SubletError: ``UNAVAILABLE`` where the daemon stops or too much is under way; or what ``work`` raises.
        """
        if not self._tasks.open:
            raise stopping()
        if self._under_way >= MAX_RUNS:
            raise SubletError(LocalCode.UNAVAILABLE, f"{MAX_RUNS} requests are under way", "Try again in a moment.")
        running = _Run(_job(text, self._scratch_root, chain, seconds), work)
        self._under_way += 1
        try:
            self._tasks.start("a request", running.run)
            with running.pieces:
                async for piece in _alive(running.pieces):
                    yield piece
        finally:
            running.scope.cancel()
            with anyio.CancelScope(shield=True):
                await running.finished.wait()
            self._under_way -= 1
        if running.dropped:
            yield Output("note", "", running.dropped)
        yield running.result()


async def _alive(pieces: MemoryObjectReceiveStream[Output]) -> AsyncGenerator[Output, None]:
    """Yield pieces as they come, and empty ones between, so that whoever reads them knows that somebody is there."""
    while True:
        piece = Output("note", "")
        with anyio.move_on_after(HEARTBEAT_SECONDS):
            try:
                piece = await pieces.receive()
            except anyio.EndOfStream:
                return
        yield piece


class _Run:
    def __init__(self, job: Job, work: Work) -> None:
        self.scope = anyio.CancelScope()
        self.finished = asyncio.Event()
        self.dropped = 0
        self._job = job
        self._work = work
        self._output: UnifiedAgentOutput | None = None
        self._error: SubletError | None = None
        self._send, self.pieces = anyio.create_memory_object_stream[Output](MAX_PENDING_PIECES)

    async def run(self) -> None:
        """Do it in a directory of its own, which is gone afterwards. Nothing is raised."""
        home = self._job.scratch.parent
        try:
            with self.scope:
                await asyncio.to_thread(make_fresh, home, "workspace", "meta", "scratch")
                self._output = await self._work(self._job, self._report)
        except SubletError as error:
            self._error = error
        except Exception:
            log.exception("a request broke")
            self._error = SubletError(ErrorCode.TASK_FAILED, "the executor had an internal error", "See its log.")
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(is_removed, home)
            self._send.close()
            self.finished.set()

    def result(self) -> UnifiedAgentOutput:
        """Return what came of it.

        Raises:
            SubletError: why nothing did.
        """
        if self._error is not None:
            raise self._error
        if self._output is None:
            raise stopping()
        return self._output

    def _report(self, output: Output) -> None:
        self.dropped += output.dropped_chars
        try:
            self._send.send_nowait(output)
        except (anyio.WouldBlock, anyio.BrokenResourceError):
            self.dropped += len(output.text)


def stopping() -> SubletError:
    """Return the error of what the stop of the daemon ends."""
    return SubletError(LocalCode.UNAVAILABLE, "the daemon is stopping", "Try again later.")


def _job(text: str, scratch_root: Path, chain: Chain, seconds: float) -> Job:
    job_id = new_delegation_id()
    home = scratch_root / job_id
    return Job(
        delegation_id=job_id,
        description="message",
        prompt=text,
        access_mode="rw",
        resources=[JobResource("workspace", home / "workspace", "rw")],
        meta=home / "meta",
        scratch=home / "scratch",
        mount_point=home / "workspace",
        remaining_seconds=seconds,
        expires_at=rfc3339(time.time() + seconds),
        # Who called goes on counting while this waits for a turn or a slot.
        deadline=None if chain.ttl is None else Deadline(anyio.current_time() + chain.ttl),
        gate=None,  # each agent's worker puts its own in place
        chain=chain,
    )
