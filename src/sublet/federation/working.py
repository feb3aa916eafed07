"""Tasks of other nodes: each is started at most once, and its result is kept until its node has taken it.

Rules:

- A task is in the journal before it is started, under its node and ``request_id``. The same request again starts
  nothing: it is at work still, or its result is sent again.
- After a kill nobody knows how far a task came. It is answered ``success: false`` and never run again.
- A request is taken as soon as it is in the journal; that it was taken says nothing of what comes of it.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskGroup

from sublet import deadlines
from sublet.federation.limits import Rate
from sublet.federation.neighbours import Neighbour
from sublet.federation.own_statuses import OwnStatuses
from sublet.federation.ports import Admission, AdmittedTask, Ledger, TaskRow, Telling, Work
from sublet.federation.post import Own, Post
from sublet.federation.settings import Settings
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.federation.addresses import AgentAddress
from sublet.protocol.federation.envelope import Envelope
from sublet.protocol.federation.errors import FederationCode, TaskRefused, code_of
from sublet.protocol.federation.events import (
    CANCEL,
    PROGRESS,
    AgentMessage,
    TaskRequest,
    TaskResponse,
    TaskResult,
    failure_result,
)
from sublet.protocol.times import rfc3339_of
from sublet.tasks import start_alone

MAX_TASKS: Final = 64
"""Of all nodes, at work at one time."""
MAX_TASKS_OF_NODE: Final = 16
TASKS_A_SECOND: Final = 1.0
TASKS_AT_ONCE: Final = 60.0
"""New tasks for one agent of ours from one node."""
PROGRESS_SECONDS: Final = 1.0
"""How often what is said is sent on, at most."""
MAX_PROGRESS_CHARS: Final = 4_000
LATER: Final = (FederationCode.AGENT_BUSY, FederationCode.NODE_UNREACHABLE)
"""Refusals of a result that the node may take another time."""
INTERRUPTED: Final = failure_result(
    FederationCode.TIMEOUT, "the node was stopped while the agent worked; the task is not run again", "interrupted"
)

log = structlog.get_logger(__name__)


class Working:
    """See the module. Tasks run in the group that ``begin`` gets.

    Args:
        own: this node.
        settings: as they are now.
        offers: tells whether an agent is offered here.
        statuses: what our agents are at.
        post: sends.
        admission: asks policy.
        work: has agents work.
        ledger: the journal.
        tell: the log of events.
        changed: called where an agent is at something else.
        steady: seconds that never go back.
        wall: Unix seconds.
    """

    def __init__(
        self,
        own: Own,
        settings: Callable[[], Settings],
        offers: Callable[[str], bool],
        statuses: OwnStatuses,
        post: Post,
        admission: Admission,
        work: Work,
        ledger: Ledger,
        tell: Telling,
        changed: Callable[[], None],
        steady: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._own = own
        self._settings = settings
        self._offers = offers
        self._statuses = statuses
        self._post = post
        self._admission = admission
        self._work = work
        self._ledger = ledger
        self._tell = tell
        self._changed = changed
        self._steady = steady
        self._wall = wall
        self._rate = Rate(TASKS_A_SECOND, TASKS_AT_ONCE, steady)
        self._group: TaskGroup | None = None
        self._running: dict[tuple[str, str], anyio.CancelScope] = {}
        """By node id and request id."""
        self._of_node: Counter[str] = Counter()
        self._sending: set[str] = set()

    async def begin(self, group: TaskGroup) -> None:
        """End what an earlier process had started, and take tasks from now on."""
        # Of an earlier group that failed some may never have begun, so that nothing else counts them out.
        self._running.clear()
        self._of_node.clear()
        self._sending.clear()
        left = await self._ledger.interrupt(INTERRUPTED)
        if left:
            log.warning("tasks of other nodes were interrupted, and are answered so", tasks=left)
        self._group = group

    def end(self) -> None:
        """Take no tasks any more; those at work end with the group."""
        self._group = None

    async def take(self, neighbour: Neighbour, envelope: Envelope, request: TaskRequest) -> None:
        """Take a task, once it is in the journal.

        Raises:
            TaskRefused: it is not taken.
            SubletError: ``UNAVAILABLE`` where the journal takes nothing.
        """
        sender, target = _addresses(request)
        if sender.node != envelope.origin or envelope.sender != f"@{sender.agent_id}:{sender.node}":
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "from_agent is an agent of another node", "owner")
        if target.node != self._own.name:
            raise TaskRefused(FederationCode.AGENT_NOT_FOUND, "to_agent is an agent of another node", "node")
        if self._group is None:
            raise TaskRefused(FederationCode.NODE_UNREACHABLE, "the node is stopping", "stopping")
        row = TaskRow(request.request_id, neighbour.node.id, target.agent_id, request.from_agent, None)
        key = row.node_id, row.request_id
        if key in self._running:
            return
        task = AdmittedTask(neighbour.node, envelope.origin, target.agent_id, request, envelope.chain)
        self._check_room(task)
        # Its place is taken before the disk is waited for: many may come at one time.
        scope = self._running[key] = anyio.CancelScope()
        self._of_node[row.node_id] += 1
        begun = False
        try:
            known = await self._ledger.take(row)
            if known is None:
                self._post.check_paired(neighbour)
                begun = self._group is not None
        finally:
            if not begun:
                self._free(key)
        if known is None:
            self._start(self._run, neighbour, task, row, scope)
        elif known.result is not None:
            self._start(self._answer, neighbour, known)

    def _check_room(self, task: AdmittedTask) -> None:
        node, agent_id = task.node, task.agent_id
        if len(self._running) >= MAX_TASKS or self._of_node[node.id] >= MAX_TASKS_OF_NODE:
            raise TaskRefused(FederationCode.AGENT_BUSY, "too many tasks of other nodes are at work here", "full")
        # All names of agents that it can't ask share one bucket, as it may make up as many as it likes.
        there = self._offers(agent_id) and self._admission.tells(node, task.name, agent_id)
        if not self._rate.take(f"{node.id}/{agent_id if there else ''}"):
            raise TaskRefused(FederationCode.AGENT_BUSY, "that node asks this agent too often", "rate")

    def _free(self, key: tuple[str, str]) -> None:
        if self._running.pop(key, None) is not None:
            self._of_node[key[0]] -= 1

    def forget(self, node_id: str) -> None:
        """End the tasks of a node that is paired no more."""
        for (whose, _), scope in [*self._running.items()]:
            if whose == node_id:
                scope.cancel()

    def take_cancel(self, neighbour: Neighbour, message: AgentMessage) -> None:
        """End a task that its own node wants no more.

        Raises:
            TaskRefused: the message names none.
        """
        payload = message.payload if isinstance(message.payload, dict) else {}
        request_id = payload.get("request_id")
        if not isinstance(request_id, str) or message.message_type != CANCEL:
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "a cancel names its request_id", "cancel")
        scope = self._running.get((neighbour.node.id, request_id))
        if scope is not None:
            scope.cancel()

    def greeted(self, neighbour: Neighbour) -> None:
        """Send a node the results that it has not taken yet."""
        if neighbour.node.id not in self._sending and self._group is not None:
            self._sending.add(neighbour.node.id)
            self._start(self._resend, neighbour)

    async def _resend(self, neighbour: Neighbour) -> None:
        try:
            while rows := await self._ledger.unheard(neighbour.node.id):
                for row in rows:
                    if not await self._answer(neighbour, row):
                        return
        finally:
            self._sending.discard(neighbour.node.id)

    async def _run(self, neighbour: Neighbour, task: AdmittedTask, row: TaskRow, scope: anyio.CancelScope) -> None:
        key, began = (row.node_id, row.request_id), self._steady()
        result: TaskResult | None = None
        told: dict[str, Any] = {"request": row.request_id, "agent": row.agent_id, "from": row.requester}
        try:
            with scope:
                await self._tell("task", {**told, "state": "started"})
                self._statuses.begin(row.agent_id, task.request.task.task_id, key)
                self._changed()
                result = await self._result(neighbour, task)
            if result is None:
                result = failure_result(FederationCode.TIMEOUT, "the task was cancelled", "cancelled")
            took = {"duration_ms": int((self._steady() - began) * 1000)}
            result = result.model_copy(update={"metadata": {**result.metadata, **took}})
        finally:
            self._free(key)
            failed = result is None or (not result.success and "error_code" not in result.metadata)
            self._statuses.end(row.agent_id, key, failed=failed)
            self._changed()
        ended = TaskRow(row.request_id, row.node_id, row.agent_id, row.requester, result)
        with anyio.CancelScope(shield=True):
            try:
                await self._ledger.end(ended)
            except SubletError as error:  # it is told at once all the same: after a kill it is told as interrupted
                log.error("a result is not in the journal", request=row.request_id, reason=error.message)
        code = result.metadata.get("error_code")
        await self._tell("task", {**told, "state": "done" if result.success else "failed", "code": code})
        await self._answer(neighbour, ended)

    async def _result(self, neighbour: Neighbour, task: AdmittedTask) -> TaskResult:
        """Return what came of a task, whatever it is."""
        try:
            await self._admit(task)
            async with deadlines.timeout(task.request.seconds):
                return await self._worked(neighbour, task)
        except TaskRefused as refusal:
            return failure_result(refusal.code, refusal.message, refusal.reason)
        except TimeoutError:
            said = f"the agent did not end within {task.request.seconds} s"
            return failure_result(FederationCode.TIMEOUT, said, "time")
        except SubletError as error:
            code = code_of(error)
            words = f"{error.message}. {error.hint}".strip()
            if code is not None:
                return failure_result(code, words, str(error.code))
            return TaskResult(
                success=False, output=words, exit_code=_exit_code(error), metadata={"code": str(error.code)}
            )

    async def _admit(self, task: AdmittedTask) -> None:
        """Return if a task may be started. Of an agent that a rule hides the same is said as of one that is none."""
        nobody = TaskRefused(FederationCode.AGENT_NOT_FOUND, f"there is no agent {task.agent_id} here")
        if not self._offers(task.agent_id):
            raise nobody
        try:
            await self._admission.task(task, self._settings().room.namespace)
        except SubletError as error:
            if error.code is LocalCode.NOT_FOUND:
                raise nobody from None
            raise
        if task.request.task.model:
            # Our agents have the model that their owner chose; to work with another one would be a lie.
            raise TaskRefused(FederationCode.INVALID_PAYLOAD, "the model of an agent here is its owner's", "model")

    async def _worked(self, neighbour: Neighbour, task: AdmittedTask) -> TaskResult:
        said, told_at = "", 0.0
        async with aclosing(self._work.run(task)) as pieces:
            async for piece in pieces:
                if isinstance(piece, TaskResult):
                    return piece
                said = (said + piece.text)[-MAX_PROGRESS_CHARS:]
                if said and self._steady() - told_at >= PROGRESS_SECONDS:
                    told_at = self._steady()
                    self._start(self._progress, neighbour, task, said)
                    said = ""
        return failure_result(FederationCode.TIMEOUT, "the agent ended without an answer", "interrupted")

    async def _progress(self, neighbour: Neighbour, task: AdmittedTask, text: str) -> None:
        message = AgentMessage(
            message_id=str(uuid.uuid4()),
            from_agent=task.request.to_agent,
            to_agent=task.request.from_agent,
            message_type=PROGRESS,
            payload={"request_id": task.request.request_id, "text": text},
            timestamp=rfc3339_of(self._wall()),
        )
        with suppress(TaskRefused):
            await self._post.send(neighbour, [message], sender=task.agent_id)

    async def _answer(self, neighbour: Neighbour, row: TaskRow) -> bool:
        """Send a result; return whether the node has it. One that is not reached gets it once it is greeted."""
        assert row.result is not None, "it is over"
        if neighbour.name is None:
            return False
        response = TaskResponse(
            request_id=row.request_id,
            from_agent=f"{row.agent_id}@{self._own.name}",
            to_agent=row.requester,
            result=row.result,
            timestamp=rfc3339_of(self._wall()),
        )
        try:
            receipt = await self._post.send(neighbour, [response], sender=row.agent_id)
        except TaskRefused as refusal:
            log.warning(
                "an answer can't be sent, so its node is told less", request=row.request_id, why=refusal.message
            )
            receipt = await self._post.send(
                neighbour,
                [response.model_copy(update={"result": failure_result(refusal.code, refusal.message)})],
                sender=row.agent_id,
            )
        if receipt is None or (receipt.refusal is not None and receipt.refusal.code in LATER):
            return False
        await self._ledger.heard(row)
        return True

    def _start(self, call: Callable[..., Any], *arguments: Any) -> None:
        if self._group is not None:
            start_alone(self._group, "a task of another node", call, *arguments)


def _addresses(request: TaskRequest) -> tuple[AgentAddress, AgentAddress]:
    try:
        return AgentAddress.parse(request.from_agent), AgentAddress.parse(request.to_agent)
    except SubletError as error:
        raise TaskRefused(FederationCode.INVALID_PAYLOAD, error.message) from None


def _exit_code(error: SubletError) -> int:
    end = error.agent_end
    return end.exit_code if end is not None and end.exit_code else -1
