"""Following a delegation on the peer through broken streams, restarts and lost answers (DESIGN 4.2)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from enum import Enum, auto

import structlog
from a2a.types import SendMessageRequest, StreamResponse, SubscribeToTaskRequest, Task, TaskState
from a2a.utils.errors import A2AError, TaskNotFoundError, UnsupportedOperationError
from google.protobuf.struct_pb2 import Struct

from sublet.a2a_server.answers import AnswerReader
from sublet.a2a_server.delegated import DONE_ARTIFACT
from sublet.a2a_server.session import PeerSession
from sublet.daemon.ports import Silence, Update
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import Error, Progress

log = structlog.get_logger(__name__)

FIRST_RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 10.0
MAX_STARTS = 5
"""How often START is sent before its refusal is believed."""
START_SECONDS = 8.0
"""How long a peer that can't be reached is tried for the first START. It holds nothing yet that could be waited for."""
_STEADY_SECONDS = 5.0
"""A stream that lasted this long was a good one: after it, waiting begins anew."""


class _Next(Enum):
    """What to do on the peer."""

    START = auto()
    READ = auto()
    SUBSCRIBE = auto()


class Follower:
    """Sends START and yields what comes of it.

    Args:
        session: returns the session to the peer; asked anew for every attempt.
        task_id: the task that answered INVITE.
        start: returns a freshly signed START, since one that may have arrived can't be sent twice.
        reader: checks answers.
        refused: turns an A2A error into the ERROR that it stands for.
    """

    def __init__(
        self,
        session: Callable[[], Awaitable[PeerSession]],
        task_id: str,
        start: Callable[[], SendMessageRequest],
        reader: AnswerReader,
        refused: Callable[[A2AError], Error],
    ) -> None:
        self._session = session
        self._task_id = task_id
        self._start = start
        self._reader = reader
        self._refused = refused
        self._task = Task(id=task_id)
        self._last: Progress | None = None
        self._heard = False
        """Whether the task has said anything since START was sent."""
        self._silent = False

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Yield progress, then one DONE or ERROR.

        Raises:
            SubletError: ``AUTH_FAILED``, ``KEY_CHANGED``, or ``PEER_UNREACHABLE`` where not even START gets through;
                all that may pass by itself is tried again.
        """
        step, wait, starts = _Next.START, FIRST_RETRY_SECONDS, 0
        give_up = time.monotonic() + START_SECONDS
        while True:
            began, doing = time.monotonic(), step
            try:
                session = await self._session()
                if doing is _Next.READ:
                    self._task.CopyFrom(await session.get_task(self._task_id))
                    if (heard := self._end_silence()) is not None:
                        yield heard
                    waiting = self._task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
                    step = _Next.START if waiting else _Next.SUBSCRIBE
                    for update in self._news(self._task.metadata):
                        yield update
                        if not isinstance(update, Progress):
                            return
                    continue
                step = _Next.READ
                starts += doing is _Next.START
                async with aclosing(session.stream(self._request(doing))) as events:
                    async for event in events:
                        if (heard := self._end_silence()) is not None:
                            yield heard
                        for update in self._news(self._apply(event)):
                            yield update
                            if not isinstance(update, Progress):
                                return
            except TaskNotFoundError:
                yield self._lost()
                return
            except A2AError as error:
                # A second START may be refused because the first has arrived after all: then the task tells.
                if doing is _Next.START and starts in (1, MAX_STARTS):
                    yield self._refused(error)
                    return
            except SubletError as error:
                if error.code is not LocalCode.PEER_UNREACHABLE:
                    raise
                log.info("the stream of a task broke", task_id=self._task_id, reason=str(error))
                if not self._heard and time.monotonic() > give_up:
                    raise
                if not self._silent:
                    self._silent = True
                    yield Silence(error.message)
            # A stream that ends without a terminal state is never taken for an end: it may have been too slow for
            # the peer, which drops such streams without a word.
            if time.monotonic() - began > _STEADY_SECONDS:
                wait = FIRST_RETRY_SECONDS
            await asyncio.sleep(wait)
            wait = min(wait * 2, MAX_RETRY_SECONDS)

    def _end_silence(self) -> Silence | None:
        """Note that the task has said something, and return that it is heard again if it was not."""
        self._heard = True
        was_silent, self._silent = self._silent, False
        return Silence("") if was_silent else None

    def _request(self, step: _Next) -> SendMessageRequest | SubscribeToTaskRequest:
        return self._start() if step is _Next.START else SubscribeToTaskRequest(id=self._task_id)

    def _apply(self, event: StreamResponse) -> Struct:
        """Bring our picture of the task up to date and return the metadata that came with the event."""
        match event.WhichOneof("payload"):
            case "task":
                self._task.CopyFrom(event.task)
                return event.task.metadata
            case "status_update":
                self._task.status.CopyFrom(event.status_update.status)
                return event.status_update.metadata
            case "artifact_update" if event.artifact_update.artifact.artifact_id == DONE_ARTIFACT:
                del self._task.artifacts[:]
                self._task.artifacts.append(event.artifact_update.artifact)
        return Struct()

    def _news(self, metadata: Struct) -> Iterator[Update]:
        """Yield what is new in our picture of the task; what was missed while the stream was broken is new too."""
        progress = self._reader.progress(metadata)
        if progress is not None and progress != self._last:
            self._last = progress
            yield progress
        end = self._reader.end(self._task)
        if end is not None:
            yield end

    def _lost(self) -> Error:
        return self._refused(
            UnsupportedOperationError(
                message="the peer does not know the task any more",
                data={"code": str(ErrorCode.TASK_FAILED), "message": "the peer does not know the task any more"},
            )
        )
