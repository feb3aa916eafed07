"""The SDK's request handler with what it lacks: repeated INVITEs, renewals, ERROR as cancel, cancel of parked tasks."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, TypeVar

import structlog
from a2a.server.agent_execution import AgentExecutor, RequestContextBuilder
from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.events.event_queue import QueueShutDown  # type: ignore[attr-defined]  # there is no other name
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.types import AgentCard, CancelTaskRequest, Message, SendMessageRequest, Task, TaskState
from a2a.utils.errors import A2AError, InvalidParamsError, TaskNotCancelableError, UnsupportedOperationError
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.task import apply_history_length
from anyio import CapacityLimiter, to_thread

from sublet.a2a_server.caller import caller_of
from sublet.a2a_server.delegated import DelegatedWork
from sublet.a2a_server.refusal import a2a_error
from sublet.a2a_server.task_store import SqliteTaskStore
from sublet.a2a_server.work import AlreadyAnswered, RenewRequested, StopRequested, is_delegation
from sublet.daemon.ports.given_to_a2a import ExecutorApi
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.text import clean_line

log = structlog.get_logger(__name__)

MethodT = TypeVar("MethodT", bound=Callable[..., object])

AT_ONCE_BYTES: Final = 2_048
"""A message of more bytes is looked through in a thread: the SDK looks at each value in it, some 15 µs for each."""
PARKED_SECONDS = 120.0
"""After this long an unanswered INVITE costs no memory any more; START revives its task from the store."""


class SubletRequestHandler(DefaultRequestHandler):
    """Answers A2A calls.

    Args:
        agent_executor: does the work.
        store: the task store.
        card: only its capabilities are read here.
        builder: accepts or refuses messages.
        executor: told of every cancel, since the SDK calls nobody for a task that it does not hold in memory.
        delegated: answers renewals.
    """

    def __init__(
        self,
        agent_executor: AgentExecutor,
        store: SqliteTaskStore,
        card: AgentCard,
        builder: RequestContextBuilder,
        executor: ExecutorApi,
        delegated: DelegatedWork,
    ) -> None:
        super().__init__(
            agent_executor=agent_executor,
            task_store=store,
            agent_card=card,
            request_context_builder=builder,
            interrupted_task_timeout=PARKED_SECONDS,
        )
        self._checking = CapacityLimiter(1)
        self._tasks = store
        self._executor = executor
        self._delegated = delegated

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Message | Task:
        """Answer ``message/send``; what was answered before is answered alike."""
        try:
            await self._check(params)
            answer: Message | Task = await _unchecked(DefaultRequestHandler.on_message_send)(self, params, context)
            return answer
        except AlreadyAnswered as earlier:
            return apply_history_length(earlier.task, params.configuration)
        except StopRequested as stop:
            return await self._stop(stop, context)
        except RenewRequested as renewal:
            return await self._delegated.renew(renewal)
        except QueueShutDown:
            raise _ended_meanwhile() from None

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Answer ``message/stream``; what was answered before is answered alike."""
        try:
            await self._check(params)
            stream = _unchecked(DefaultRequestHandler.on_message_send_stream)
            async with aclosing(stream(self, params, context)) as events:
                async for event in events:
                    yield event
        except AlreadyAnswered as earlier:
            yield apply_history_length(earlier.task, params.configuration)
        except StopRequested as stop:
            yield await self._stop(stop, context)
        except RenewRequested as renewal:
            yield await self._delegated.renew(renewal)
        except QueueShutDown:
            raise _ended_meanwhile() from None

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        """Cancel a task and the delegation behind it.

        Raises:
            TaskNotFoundError: it is not the caller's, or not there.
            TaskNotCancelableError: it has ended.
        """
        cancelled: Task | None = await super().on_cancel_task(params, context)
        peer = caller_of(context).peer
        if cancelled is not None and peer is not None and is_delegation(cancelled):
            try:
                await self._executor.cancel(cancelled.context_id, peer)
            except SubletError as error:
                # The task is over either way; the executor role may never have heard of it.
                log.info("nothing to cancel", delegation_id=cancelled.context_id, reason=str(error))
        return cancelled

    async def _check(self, params: SendMessageRequest) -> None:
        """Check what the SDK checks before it begins, with everybody else in between.

        Raises:
            InvalidParamsError: a field that has to be there is missing.
        """
        if params.ByteSize() <= AT_ONCE_BYTES:
            validate_proto_required_fields(params)
            return
        # What a thread raises is kept by its future and keeps it, with the parameters, until Python looks for cycles.
        lacking = await to_thread.run_sync(_lacking, params, limiter=self._checking)
        if lacking is not None:
            raise InvalidParamsError(lacking.message, lacking.data)

    async def _stop(self, stop: StopRequested, context: ServerCallContext) -> Task:
        if stop.message.sublet.grace_seconds and stop.task.status.state == TaskState.TASK_STATE_WORKING:
            return await self._wind_down(stop, context)
        try:
            stopped = await self.on_cancel_task(CancelTaskRequest(id=stop.task.id), context)
        except TaskNotCancelableError:
            stopped = await self._tasks.get(stop.task.id, context)
        return stopped or stop.task

    async def _wind_down(self, stop: StopRequested, context: ServerCallContext) -> Task:
        """Have the work end by itself: its stream then tells of the end."""
        error = SubletError(
            stop.message.code, clean_line(stop.message.message), clean_line(stop.message.hint), from_peer=True
        )
        try:
            await self._executor.wind_down(
                stop.message.delegation_id, stop.peer, error, float(stop.message.sublet.grace_seconds)
            )
        except SubletError as failure:
            log.info("nothing to wind down", delegation_id=stop.message.delegation_id, reason=str(failure))
        return await self._tasks.get(stop.task.id, context) or stop.task


def _lacking(params: SendMessageRequest) -> InvalidParamsError | None:
    try:
        validate_proto_required_fields(params)
    except InvalidParamsError as error:
        return error.with_traceback(None)
    return None


def _unchecked(method: MethodT) -> MethodT:
    """Return a method of the SDK's without what is wrapped around it: its check of the parameters, on the event loop.

    What else is wrapped around it makes spans for OpenTelemetry, which the daemon has switched off.
    """
    unwrapped: MethodT = inspect.unwrap(method)
    return unwrapped


def _ended_meanwhile() -> A2AError:
    """Return the answer to a message that came just as its task ended; to the SDK that is an internal error."""
    return a2a_error(
        SubletError(ErrorCode.DECLINED, "the task ended while the message came", "Start with a new INVITE."),
        UnsupportedOperationError,
    )
