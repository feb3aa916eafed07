"""A ``PeerLink`` whose peer is played by the test: it accepts, refuses, streams, breaks, hangs or answers late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from enum import Enum, auto
from typing import TypeAlias

import anyio
import asyncssh

from sublet.daemon.api.peers import AgentView
from sublet.daemon.ports.given_to_a2a import Moved, PairReply, PairRequest
from sublet.daemon.ports.peer_link import BusAddress, PeerAddress, RemoteTask, Update
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import (
    Accept,
    Done,
    DoneExtension,
    Error,
    Invite,
    Progress,
    RemoteConstraints,
    RemoteMount,
    Start,
)

EXECUTOR_KEY = asyncssh.generate_private_key("ssh-ed25519")
PUBLIC_KEY = EXECUTOR_KEY.export_public_key().decode().strip()
BOB = PeerAddress("bob", "http://127.0.0.1:9", b"\0" * 32, None)
UNREACHABLE = SubletError(LocalCode.PEER_UNREACHABLE, "bob does not answer", "Is it running?")


class Script(Enum):
    """What a stream may do besides yielding."""

    END = auto()
    """End without a terminal message, which a link must not do."""


Step: TypeAlias = Update | Exception | Script
Answer: TypeAlias = Callable[[Invite], Awaitable[Accept | Error]]


def accept(invite: Invite, **changes: object) -> Accept:
    """Return an ACCEPT of ``invite`` with fields of ``remote_constraints``, ``remote_mount`` or ``sublet`` changed."""
    return Accept.model_validate(
        {
            "delegation_id": invite.delegation_id,
            "remote_mount": {"mount_point": changes.pop("mount_point", "/mounts/" + invite.delegation_id)},
            "sublet": changes.pop("sublet", {}),
            "remote_constraints": {"public_key": PUBLIC_KEY, **changes},
        }
    )


def accepting(**changes: object) -> Answer:
    """Return an answer that accepts."""

    async def answer(invite: Invite) -> Accept:
        return accept(invite, **changes)

    return answer


def refusing(code: ErrorCode = ErrorCode.DECLINED, message: str = "no") -> Answer:
    """Return an answer that refuses."""

    async def answer(invite: Invite) -> Error:
        return Error(delegation_id=invite.delegation_id, code=code, message=message, hint="ask later")

    return answer


def failing(*errors: Exception, then: Answer | None = None) -> Answer:
    """Return an answer that fails once with each error, and then does ``then``."""
    left = list(errors)

    async def answer(invite: Invite) -> Accept | Error:
        if left:
            raise left.pop(0)
        assert then is not None
        return await then(invite)

    return answer


async def agreeing(start: Start) -> Accept:
    """Agree to what a renewal asks for."""
    return Accept(
        delegation_id=start.delegation_id,
        remote_mount=RemoteMount(mount_point="/mounts/" + start.delegation_id),
        remote_constraints=RemoteConstraints(max_ttl_seconds=start.sublet.remaining_seconds),
    )


async def hanging(_: Invite) -> Accept:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


class ScriptedLink:
    """See module. ``answer`` is for INVITE; ``say`` queues what the stream of a delegation does after START.

    Where it ``obeys``, a stream ends with the ERROR that it is sent. Where ``closes_on`` is set, a stream can't be
    closed before that.
    """

    def __init__(self) -> None:
        self.answer: Answer = accepting()
        self.invites: list[Invite] = []
        self.starts: list[Start] = []
        self.followed: list[RemoteTask] = []
        self.renewals: list[Start] = []
        self.renewal: Callable[[Start], Awaitable[Accept | Error]] = agreeing
        self.cancelled: list[str] = []
        self.failed: list[Error] = []
        self.obeys = True
        self.fail_fails: Exception | None = None
        self.invited = asyncio.Event()
        self.started = asyncio.Event()
        self.cancel_hangs = False
        self.cancel_fails: Exception | None = None
        self.streams_open = 0
        self.closes_on: asyncio.Event | None = None
        self._steps: dict[str, asyncio.Queue[Step]] = {}

    def say(self, delegation_id: str, *steps: Step) -> None:
        """Queue steps."""
        for step in steps:
            self._queue(delegation_id).put_nowait(step)

    def progress(self, delegation_id: str, phase: str = "running", text: str = "", **more: object) -> None:
        """Queue progress."""
        body = {"delegation_id": delegation_id, "phase": phase, "text": text, **more}
        self.say(delegation_id, Progress.model_validate(body))

    def done(self, delegation_id: str, summary: str = "all is done", exit_code: int = 0) -> None:
        """Queue DONE."""
        end = Done(delegation_id=delegation_id, final_summary=summary, sublet=DoneExtension(exit_code=exit_code))
        self.say(delegation_id, end)

    def error(self, delegation_id: str, code: ErrorCode = ErrorCode.TASK_FAILED, message: str = "it broke") -> None:
        """Queue ERROR."""
        self.say(delegation_id, Error(delegation_id=delegation_id, code=code, message=message))

    async def invite(self, peer: PeerAddress, message: Invite) -> tuple[RemoteTask, Accept | Error]:
        self.invites.append(message)
        self.invited.set()
        return RemoteTask(f"tsk_{message.delegation_id}", message.delegation_id), await self.answer(message)

    async def run(self, peer: PeerAddress, task: RemoteTask, message: Start) -> AsyncGenerator[Update, None]:
        self.starts.append(message)
        self.started.set()
        self.streams_open += 1
        try:
            while True:
                step = await self._queue(message.delegation_id).get()
                if step is Script.END:
                    return
                if isinstance(step, Exception):
                    raise step
                assert not isinstance(step, Script)
                yield step
                if isinstance(step, Done | Error):
                    return
        finally:
            if self.closes_on is not None:
                with anyio.CancelScope(shield=True):
                    await self.closes_on.wait()
            self.streams_open -= 1

    async def follow(
        self, peer: PeerAddress, task: RemoteTask, message: Callable[[], Start]
    ) -> AsyncGenerator[Update, None]:
        self.followed.append(task)
        async with aclosing(self.run(peer, task, message())) as updates:
            async for update in updates:
                yield update

    async def renew(self, peer: PeerAddress, task: RemoteTask, message: Start) -> Accept | Error:
        self.renewals.append(message)
        return await self.renewal(message)

    async def cancel(self, peer: PeerAddress, task: RemoteTask) -> None:
        self.cancelled.append(task.task_id)
        if self.cancel_hangs:
            await asyncio.Event().wait()
        if self.cancel_fails is not None:
            raise self.cancel_fails

    async def fail(self, peer: PeerAddress, task: RemoteTask, message: Error) -> None:
        self.failed.append(message)
        if self.fail_fails is not None:
            raise self.fail_fails
        if self.obeys:
            self.say(message.delegation_id, message)

    async def tell_moved(self, peer: PeerAddress, moved: Moved) -> None:
        raise NotImplementedError

    async def bus(self, peer: PeerAddress) -> BusAddress | None:
        return None

    async def agents(self, peer: PeerAddress) -> list[AgentView]:
        return []

    async def pair(self, url: str, request: PairRequest, *, tls_fingerprint: str | None) -> PairReply:
        raise NotImplementedError

    async def aclose(self) -> None:
        return

    def _queue(self, delegation_id: str) -> asyncio.Queue[Step]:
        return self._steps.setdefault(delegation_id, asyncio.Queue())
