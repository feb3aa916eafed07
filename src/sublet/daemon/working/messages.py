"""Plain messages to the default agent, from A2A clients that know nothing of workspaces (DESIGN 1)."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import anyio
import structlog
from anyio.abc import TaskGroup

from sublet.daemon.times import rfc3339
from sublet.policy.engine import Policy
from sublet.policy.model import Action, Resource, Subject
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.ids import new_delegation_id
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.model import Job, JobResource, Outcome, Output, Provider
from sublet.supervisor.slots import Slots

MESSAGE_SECONDS = 600.0
"""How long one plain message may keep the agent busy."""
MAX_PENDING_PIECES = 256

log = structlog.get_logger(__name__)


class Messages:
    """Implements ``MessageApi``: each message is one job in an empty private directory; nothing is lent."""

    def __init__(
        self,
        *,
        policy: Policy,
        slots: Slots,
        agents: Callable[[], Sequence[AgentConfig]],
        provider: Callable[[str], Provider],
        scratch_root: Path,
    ) -> None:
        self._policy = policy
        self._slots = slots
        self._agents = agents
        self._provider = provider
        self._scratch_root = scratch_root
        self._group: TaskGroup | None = None

    async def serve(self) -> None:
        """Run the agents that answer until cancelled, and end them then."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                await anyio.sleep_forever()
            finally:
                self._group = None

    async def answer(self, text: str, caller: Subject, *, context_id: str) -> AsyncGenerator[str, None]:
        """Run the default agent on ``text``: ``MessageApi.answer``.

        Raises:
            SubletError: ``POLICY_DENIED``; ``DECLINED`` for want of an agent or a slot; ``TASK_FAILED`` where the agent
                fails; ``UNAVAILABLE`` where the daemon stops.
        """
        agents = self._agents()
        if not agents:
            raise SubletError(ErrorCode.DECLINED, "no agent is offered here", "Offer one: sublet up --agent FILE")
        decision = self._policy.decide(caller, Action.AGENT_MESSAGE, Resource(agents[0].id))
        if not decision.allowed:
            raise SubletError(LocalCode.POLICY_DENIED, decision.reason, decision.hint)
        if self._group is None:
            raise _stopping()
        job_id = new_delegation_id()
        with self._slots.run(job_id):
            work = _Answer(_job(job_id, text, self._scratch_root / job_id), self._provider(agents[0].id))
            self._group.start_soon(work.run)
            told = False
            try:
                with work.pieces:
                    async for piece in work.pieces:
                        told = True
                        yield piece
            finally:
                work.scope.cancel()
                with anyio.CancelScope(shield=True):
                    await work.finished.wait()
            rest = work.rest()
            if rest or not told:
                yield rest


class _Answer:
    """One message's job: its pieces as they come, then what is left to say, or why there is nothing."""

    def __init__(self, job: Job, provider: Provider) -> None:
        self.scope = anyio.CancelScope()
        self.finished = asyncio.Event()
        self._job = job
        self._provider = provider
        self._outcome: Outcome | None = None
        self._error: SubletError | None = None
        self._told = self._dropped = 0
        self._send, self.pieces = anyio.create_memory_object_stream[str](MAX_PENDING_PIECES)

    async def run(self) -> None:
        """Do the job in a directory of its own, which is gone afterwards. Nothing is raised."""
        home = self._job.scratch.parent
        try:
            with self.scope:
                await asyncio.to_thread(_make, home)
                self._outcome = await self._provider.run(self._job, self._report)
        except SubletError as error:
            self._error = error
        except Exception:
            log.exception("the agent broke on a plain message")
            self._error = SubletError(ErrorCode.TASK_FAILED, "the executor had an internal error", "See its log.")
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
            self._send.close()
            self.finished.set()

    def rest(self) -> str:
        """Return what no piece has told yet.

        Raises:
            SubletError: as ``MessageApi.answer``.
        """
        if self._error is not None:
            raise self._error
        outcome = self._outcome
        if outcome is None:
            raise _stopping()
        if outcome.reason != "done":
            raise SubletError(
                ErrorCode.TASK_FAILED, f"the agent ended as {outcome.reason}: {outcome.summary}", outcome.detail
            )
        if self._dropped:
            return f"\n[{self._dropped} characters were not read in time and left out; the end was:]\n{outcome.summary}"
        return "" if self._told else outcome.summary

    def _report(self, output: Output) -> None:
        if output.stream != "stdout":
            return
        self._dropped += output.dropped_chars
        try:
            self._send.send_nowait(output.text)
            self._told += len(output.text)
        except (anyio.WouldBlock, anyio.BrokenResourceError):
            self._dropped += len(output.text)


def _stopping() -> SubletError:
    return SubletError(LocalCode.UNAVAILABLE, "the daemon is stopping", "Try again later.")


def _make(home: Path) -> None:
    for name in ("workspace", "meta", "scratch"):
        (home / name).mkdir(mode=0o700, parents=True)


def _job(job_id: str, text: str, home: Path) -> Job:
    return Job(
        delegation_id=job_id,
        description="message",
        prompt=text,
        access_mode="rw",
        resources=[JobResource("workspace", home / "workspace", "rw")],
        meta=home / "meta",
        scratch=home / "scratch",
        mount_point=home / "workspace",
        remaining_seconds=MESSAGE_SECONDS,
        expires_at=rfc3339(time.time() + MESSAGE_SECONDS),
    )
