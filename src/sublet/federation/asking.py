"""Tasks that we give to agents of other nodes, until their answers are here ("消息流程" 2).

A request is sent again under the same id while its answer is awaited: the other side starts it at most once, and sends
a lost answer again. Only the node that was asked answers, and one answer counts.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from sublet.federation.neighbours import Neighbour, Neighbours
from sublet.federation.ports import Asked, Said
from sublet.federation.post import Own, Post, Receipt
from sublet.federation.table import AgentTable
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.federation.addresses import AgentAddress
from sublet.protocol.federation.errors import FederationCode, TaskRefused
from sublet.protocol.federation.events import (
    CANCEL,
    PROGRESS,
    AgentMessage,
    TaskPayload,
    TaskRequest,
    TaskResponse,
    TaskResult,
    failure_result,
)
from sublet.protocol.federation.retrying import DEFAULT_RETRY_POLICY, ONCE, RetryPolicy
from sublet.protocol.text import clean
from sublet.protocol.times import rfc3339_of

MAX_ASKED: Final = 256
"""Tasks of ours that are awaited at one time."""
MAX_PENDING_PIECES: Final = 64
PROBE_SECONDS: Final = 15.0
"""How often a request whose answer is awaited is sent again, in case the answer was lost."""
LATE_SECONDS: Final = 5.0
"""How much longer than its time a task is awaited: the other side ends it, and its answer has to come here."""
CANCEL_SECONDS: Final = 2.0
OFFLINE_LOOK_SECONDS: Final = 1.0
PASSING: Final = (FederationCode.AGENT_BUSY, FederationCode.NODE_UNREACHABLE)
"""Refusals of a request that was taken before: they tell nothing of the task, which is at work or over there."""


@dataclass(slots=True, eq=False)
class _Pending:
    """A task whose answer is awaited, of one node and one agent of it."""

    node_id: str
    to: AgentAddress
    sender: AgentAddress
    send: MemoryObjectSendStream[Said | TaskResult]
    sent: bool = False
    """Whether it may be at work there."""
    answered: bool = False


class Asking:
    """See the module.

    Args:
        own: this node.
        neighbours: the other nodes.
        table: their agents.
        post: sends.
        trusts: whether tasks are exchanged with a node.
        wall: Unix seconds.
    """

    def __init__(
        self,
        own: Own,
        neighbours: Neighbours,
        table: AgentTable,
        post: Post,
        trusts: Callable[[Neighbour], bool],
        wall: Callable[[], float],
    ) -> None:
        self._own = own
        self._neighbours = neighbours
        self._table = table
        self._post = post
        self._trusts = trusts
        self._wall = wall
        self._pending: dict[str, _Pending] = {}

    async def ask(self, asked: Asked) -> AsyncGenerator[Said | TaskResult, None]:
        """Yield what an agent of another node says while it works, then its result; closing it earlier cancels it.

        Raises:
            SubletError: ``UNAVAILABLE`` where too many tasks are awaited.
        """
        if len(self._pending) >= MAX_ASKED:
            raise SubletError(LocalCode.UNAVAILABLE, f"{MAX_ASKED} tasks are awaited already", "Try again in a moment.")
        neighbour = self._neighbours.by_name(asked.to.node)
        if neighbour is None:
            yield failure_result(FederationCode.NODE_UNREACHABLE, f"no node is known as {asked.to.node}", "unknown")
            return
        request_id = str(uuid.uuid4())
        send, receive = anyio.create_memory_object_stream[Said | TaskResult](MAX_PENDING_PIECES)
        self._pending[request_id] = pending = _Pending(neighbour.node.id, asked.to, asked.sender, send)
        try:
            with receive:
                async for piece in self._asked(asked, neighbour, request_id, pending, receive):
                    yield piece
        finally:
            del self._pending[request_id]
            send.close()
            if pending.sent and not pending.answered:
                with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_SECONDS):
                    await self._cancel(neighbour, asked, request_id)

    async def _asked(
        self,
        asked: Asked,
        neighbour: Neighbour,
        request_id: str,
        pending: _Pending,
        receive: MemoryObjectReceiveStream[Said | TaskResult],
    ) -> AsyncGenerator[Said | TaskResult, None]:
        until = anyio.current_time() + asked.seconds + LATE_SECONDS
        failure = await self._sent_first(asked, neighbour, request_id, pending, until - LATE_SECONDS)
        while failure is None:
            piece: Said | TaskResult | None = None
            with anyio.move_on_at(min(until, anyio.current_time() + PROBE_SECONDS)):
                piece = await receive.receive()
            if piece is not None:
                yield piece
                if isinstance(piece, TaskResult):
                    return
            elif anyio.current_time() >= until:
                said = f"no answer of {asked.to} came within {asked.seconds} s"
                failure = failure_result(FederationCode.TIMEOUT, said, "no_answer")
            elif not self._neighbours.has(neighbour):
                said = f"{asked.to.node} is paired no more"
                failure = failure_result(FederationCode.NODE_UNREACHABLE, said, "unpaired")
            else:
                receipt = await self._send(asked, neighbour, request_id, until - anyio.current_time(), ONCE)
                refusal = receipt.refusal if receipt is not None and not pending.answered else None
                if receipt is not None and refusal is not None and refusal.code not in PASSING:
                    failure = _refusal(receipt)
        yield failure

    async def _sent_first(
        self, asked: Asked, neighbour: Neighbour, request_id: str, pending: _Pending, until: float
    ) -> TaskResult | None:
        """Send a request until it is taken; return why it is not."""
        while True:
            rest = until - anyio.current_time()
            receipt: Receipt | None = None
            if not self._trusts(neighbour):
                said = f"federation.toml does not trust {asked.to.node} with tasks"
                return failure_result(FederationCode.NODE_UNREACHABLE, said, "trusted")
            if neighbour.name is not None and neighbour.greeted and rest > 0:
                here = self._table.find(AgentAddress(asked.to.agent_id, neighbour.name)) is not None
                if not here and (not asked.queue_if_offline or rest <= OFFLINE_LOOK_SECONDS):
                    return failure_result(
                        FederationCode.AGENT_NOT_FOUND, f"there is no agent {asked.to.agent_id} on {asked.to.node}"
                    )
                if here:
                    pending.sent = True
                    with anyio.move_on_at(until):
                        receipt = await self._send(asked, neighbour, request_id, rest)
            if receipt is not None:
                pending.sent = receipt.accepted
                return _refusal(receipt)
            if not self._neighbours.has(neighbour):
                said = f"{asked.to.node} is paired no more"
                return failure_result(FederationCode.NODE_UNREACHABLE, said, "unpaired")
            if not asked.queue_if_offline or anyio.current_time() >= until:
                why = neighbour.refused or "its daemon is not reached"
                return failure_result(FederationCode.NODE_UNREACHABLE, f"{asked.to.node} can't be asked: {why}")
            await anyio.sleep(min(OFFLINE_LOOK_SECONDS, max(0.0, until - anyio.current_time())))

    async def _send(
        self,
        asked: Asked,
        neighbour: Neighbour,
        request_id: str,
        rest: float,
        retry: RetryPolicy = DEFAULT_RETRY_POLICY,
    ) -> Receipt | None:
        if neighbour.name is None:  # it has lost its name since
            return None
        request = TaskRequest(
            request_id=request_id,
            from_agent=str(asked.sender),
            to_agent=f"{asked.to.agent_id}@{neighbour.name}",
            task=TaskPayload(task_id=request_id, prompt=asked.prompt, context=asked.context),
            timeout_secs=max(1, math.ceil(min(rest, asked.seconds))),
            timestamp=rfc3339_of(self._wall()),
        )
        try:
            return await self._post.send(
                neighbour, [request], sender=asked.sender.agent_id, chain=asked.chain, retry=retry
            )
        except TaskRefused as refusal:
            return Receipt(accepted=False, refusal=refusal)

    async def _cancel(self, neighbour: Neighbour, asked: Asked, request_id: str) -> None:
        """Tell that a task is wanted no more; where that is not heard, its own time ends it."""
        if neighbour.name is None:
            return
        said = AgentMessage(
            message_id=str(uuid.uuid4()),
            from_agent=str(asked.sender),
            to_agent=f"{asked.to.agent_id}@{neighbour.name}",
            message_type=CANCEL,
            payload={"request_id": request_id},
            timestamp=rfc3339_of(self._wall()),
        )
        with suppress(TaskRefused):
            await self._post.send(neighbour, [said], sender=asked.sender.agent_id)

    def take_response(self, neighbour: Neighbour, response: TaskResponse) -> None:
        """Take the answer to a task of ours; the first one counts.

        One that nobody awaits any more is taken as well, so that it ends there.

        Raises:
            TaskRefused: another node was asked, or another agent.
        """
        pending = self._of(neighbour, response.request_id, response.from_agent, response.to_agent)
        if pending is None or pending.answered:
            return
        try:
            pending.send.send_nowait(_cleaned(response.result))
            pending.answered = True
        except anyio.WouldBlock:
            raise TaskRefused(FederationCode.AGENT_BUSY, "its answer can't be taken just now", "full") from None
        except anyio.BrokenResourceError:
            return  # whoever asked has just gone

    def take_progress(self, neighbour: Neighbour, message: AgentMessage) -> None:
        """Take what an agent says while it works on a task of ours; where it is not read in time, it is left out.

        Raises:
            TaskRefused: another node was asked, or another agent.
        """
        payload = message.payload if isinstance(message.payload, dict) else {}
        request_id, text = payload.get("request_id"), payload.get("text")
        if not isinstance(request_id, str) or message.to_agent is None or message.message_type != PROGRESS:
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "a progress message names its request_id", "progress")
        pending = self._of(neighbour, request_id, message.from_agent, message.to_agent)
        if pending is None or not isinstance(text, str):
            return
        # The last place is the result's.
        if pending.send.statistics().current_buffer_used < MAX_PENDING_PIECES - 1:
            try:
                pending.send.send_nowait(Said(clean(text, 10_000)))
            except (anyio.WouldBlock, anyio.BrokenResourceError):
                return

    def _of(self, neighbour: Neighbour, request_id: str, who: str, to: str) -> _Pending | None:
        pending = self._pending.get(request_id)
        if pending is None:
            return None
        asked = f"{pending.to.agent_id}@{neighbour.name}"
        if pending.node_id != neighbour.node.id or who != asked or to != str(pending.sender):
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "that task was given to somebody else", "owner")
        return pending


def _refusal(receipt: Receipt) -> TaskResult | None:
    if receipt.refusal is None:
        return None
    refusal = receipt.refusal
    return failure_result(refusal.code, f"the other node does not take it: {refusal.message}", refusal.reason)


def _cleaned(result: TaskResult) -> TaskResult:
    return result.model_copy(update={"output": clean(result.output, len(result.output) + 1)})
