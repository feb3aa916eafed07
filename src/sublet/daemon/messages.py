"""Plain messages to the default agent, from A2A clients that know nothing of workspaces (DESIGN 1)."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path

import anyio

from sublet.daemon.times import rfc3339
from sublet.policy.engine import Policy
from sublet.policy.model import Action, Resource, Subject
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.ids import new_delegation_id
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.model import Job, Outcome, Output, Provider
from sublet.supervisor.slots import Slots

MESSAGE_SECONDS = 600.0
"""How long one plain message may keep the agent busy."""
MAX_PENDING_PIECES = 256


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
        self._group: asyncio.TaskGroup | None = None

    async def serve(self) -> None:
        """Run the agents that answer until cancelled, and end them then."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await anyio.sleep_forever()
            finally:
                self._group = None

    async def answer(self, text: str, caller: Subject, *, context_id: str) -> AsyncIterator[str]:
        """Run the default agent on ``text``: ``MessageApi.answer``.

        Raises:
            SubletError: ``DECLINED`` by policy or for want of a slot, ``TASK_FAILED`` where the agent fails.
        """
        agents = self._agents()
        if not agents:
            raise SubletError(ErrorCode.DECLINED, "no agent is offered here", "Offer one: sublet up --agent FILE")
        decision = self._policy.decide(caller, Action.AGENT_MESSAGE, Resource(agents[0].id))
        if not decision.allowed:
            raise SubletError(LocalCode.POLICY_DENIED, decision.reason, decision.hint)
        job_id = new_delegation_id()
        home = self._scratch_root / job_id
        with self._slots.run(job_id):
            try:
                await asyncio.to_thread(_make, home)
                async with aclosing(self._run(_job(job_id, text, home), agents[0].id)) as pieces:
                    async for piece in pieces:
                        yield piece
            finally:
                with anyio.CancelScope(shield=True):
                    await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)

    async def _run(self, job: Job, agent: str) -> AsyncGenerator[str, None]:
        if self._group is None:
            raise SubletError(LocalCode.UNAVAILABLE, "the daemon is stopping", "Try again later.")
        send, receive = anyio.create_memory_object_stream[str](MAX_PENDING_PIECES)

        def report(output: Output) -> None:
            if output.stream == "stdout":
                # A reader this slow still gets the summary, which is bounded, at the end.
                with suppress(anyio.WouldBlock):
                    send.send_nowait(output.text)

        async def work() -> Outcome:
            with send:
                return await self._provider(agent).run(job, report)

        task = self._group.create_task(_kept(work()))
        try:
            async for piece in receive:
                yield piece
            outcome = await task
        finally:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.reason != "done":
            raise SubletError(
                ErrorCode.TASK_FAILED, f"the agent ended as {outcome.reason}: {outcome.summary}", outcome.detail
            )


async def _kept(work: Awaitable[Outcome]) -> Outcome | Exception:
    """Return what ``work`` raises, so that one failing message does not end the group that serves them all."""
    try:
        return await work
    except Exception as error:
        return error


def _make(home: Path) -> None:
    for name in ("workspace", "meta", "scratch"):
        (home / name).mkdir(mode=0o700, parents=True)


def _job(job_id: str, text: str, home: Path) -> Job:
    return Job(
        delegation_id=job_id,
        description="message",
        prompt=text,
        access_mode="rw",
        workspace=home / "workspace",
        meta=home / "meta",
        scratch=home / "scratch",
        mount_point=home / "workspace",
        remaining_seconds=MESSAGE_SECONDS,
        expires_at=rfc3339(time.time() + MESSAGE_SECONDS),
    )
