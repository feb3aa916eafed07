"""What the SDK calls to do the work: AWCP messages go to the executor role, plain ones to its agent (DESIGN 4.2)."""

from __future__ import annotations

from typing import cast

import structlog
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Task, TaskState, TaskStatus

from sublet.a2a_server.caller import caller_of
from sublet.a2a_server.delegated import DelegatedWork
from sublet.a2a_server.ends import Ends
from sublet.a2a_server.plain import PlainAnswers
from sublet.a2a_server.work import AwcpWork, TextWork, is_delegation, take_work
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Invite, Start

log = structlog.get_logger(__name__)


class SubletAgentExecutor(AgentExecutor):
    """Maps work to A2A task states.

    Args:
        delegated: does INVITE and START.
        plain: answers plain messages.
        ends: who writes the end of a task.
    """

    def __init__(self, delegated: DelegatedWork, plain: PlainAnswers, ends: Ends) -> None:
        self._delegated = delegated
        self._plain = plain
        self._ends = ends

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Do what the context builder has admitted."""
        work = take_work(context.call_context)
        task_id, context_id = _ids(context)
        updater = TaskUpdater(event_queue, task_id, context_id)
        if context.current_task is None:
            await event_queue.enqueue_event(_submitted(context))
        match work:
            case AwcpWork(message=Invite() as invite):
                # An INVITE that waited behind its twin finds the task answered and adds nothing.
                if context.current_task is None:
                    await self._delegated.invite(invite, work, updater)
            case AwcpWork(message=Start() as start):
                await self._delegated.run(start, work, updater)
            case TextWork():
                await self._plain.answer(work, updater)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Stop a live task; the SDK may call this twice at once, and once more after the end."""
        task_id, context_id = _ids(context)
        first = self._ends.claim(task_id)
        updater = TaskUpdater(event_queue, task_id, context_id)
        peer = caller_of(context.call_context).peer
        if peer is None or context.current_task is None or not is_delegation(context.current_task):
            if first:
                await updater.cancel()
            return
        try:
            await self._delegated.stop(context_id, peer)
        except SubletError as error:
            # The executor role does not know it: its INVITE is still being answered, and ends with the task.
            log.info("nothing to cancel", delegation_id=context_id, reason=str(error))
        if first:
            reason = SubletError(ErrorCode.CANCELLED, "cancelled by the delegator")
            await self._delegated.fail(context_id, reason, TaskState.TASK_STATE_CANCELED, peer, updater)


def _ids(context: RequestContext) -> tuple[str, str]:
    return cast("str", context.task_id), cast("str", context.context_id)


def _submitted(context: RequestContext) -> Task:
    task_id, context_id = _ids(context)
    task = Task(id=task_id, context_id=context_id, status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED))
    task.status.timestamp.GetCurrentTime()
    if context.message is not None:
        task.history.append(context.message)
    return task
