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

from sublet.a2a_client.answers import AnswerReader
from sublet.a2a_client.session import PeerSession
from sublet.a2a_wire.names import DONE_ARTIFACT
from sublet.daemon.ports.peer_link import Silence, Update
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import Accept, Done, Error, Progress

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
    RENEW = auto()
    SUBSCRIBE = auto()


class Follower:
    """Sends START and yields what comes of it.

    Args:
        session: returns the session to the peer; asked anew for every attempt.
        task_id: the task that answered INVITE.
        start: returns a freshly signed START, since one that may have arrived can't be sent twice.
        reader: checks answers.
        refused: turns an A2A error into the ERROR that it stands for.
        renew: for work that was started earlier, by a process that is gone: sends START again to work that runs. It is
            looked first what became of it, and it is waited for without end.
    """

    def __init__(
        self,
        session: Callable[[], Awaitable[PeerSession]],
        task_id: str,
        start: Callable[[], SendMessageRequest],
        reader: AnswerReader,
        refused: Callable[[A2AError], Error],
        *,
        renew: Callable[[], Awaitable[Accept | Error]] | None = None,
    ) -> None:
        self._session = session
        self._task_id = task_id
        self._start = start
        self._reader = reader
        self._refused = refused
        self._renew = renew
        self._renewed = renew is None
        self._refusals = 0
        self._step = _Next.START if renew is None else _Next.READ
        self._starts = 0 if renew is None else 1
        self._give_up_at = 0.0
        self._task = Task(id=task_id)
        self._last: Progress | None = None
        self._heard = renew is not None
        """Whether the task has said anything since START was sent."""
        self._silent = False

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Yield progress, then one DONE or ERROR.

        Raises:
            SubletError: ``AUTH_FAILED``, ``KEY_CHANGED``, or ``PEER_UNREACHABLE`` where not even START gets through;
                all that may pass by itself is tried again.
        """
        wait = FIRST_RETRY_SECONDS
        self._give_up_at = time.monotonic() + START_SECONDS
        while True:
            began, doing = time.monotonic(), self._step
            async with aclosing(self._attempt(doing)) as updates:
                async for update in updates:
                    yield update
                    if isinstance(update, Done | Error):
                        return
            if doing in (_Next.READ, _Next.RENEW) and self._step is not _Next.READ:
                continue
            # A stream that ends without a terminal state is never taken for an end: it may have been too slow for
            # the peer, which drops such streams without a word.
            if time.monotonic() - began > _STEADY_SECONDS:
                wait = FIRST_RETRY_SECONDS
            await asyncio.sleep(wait)
            wait = min(wait * 2, MAX_RETRY_SECONDS)

    async def _attempt(self, doing: _Next) -> AsyncGenerator[Update, None]:
        """Do one thing on the peer and yield what comes of it; what is next is decided on the way."""
        try:
            session = await self._session()
            if doing is _Next.READ:
                news = self._read(session)
            elif doing is _Next.RENEW:
                news = self._go_on()
            else:
                news = self._listen(session, doing)
            async with aclosing(news) as updates:
                async for update in updates:
                    yield update
        except TaskNotFoundError:
            yield self._lost()
        except A2AError as error:
            # A second START may be refused because the first has arrived after all: then the task tells.
            if doing is _Next.START and self._starts in (1, MAX_STARTS):
                yield self._refused(error)
        except SubletError as error:
            if error.code is not LocalCode.PEER_UNREACHABLE:
                raise
            log.info("the stream of a task broke", task_id=self._task_id, reason=str(error))
            if not self._heard and time.monotonic() > self._give_up_at:
                raise
            if not self._silent:
                self._silent = True
                yield Silence(error.message)

    async def _read(self, session: PeerSession) -> AsyncGenerator[Update, None]:
        self._task.CopyFrom(await session.get_task(self._task_id))
        waiting = self._task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        if waiting:
            self._step = _Next.START
        else:
            self._step = _Next.SUBSCRIBE if self._renewed else _Next.RENEW
        for update in self._news(self._task.metadata):
            yield update

    async def _go_on(self) -> AsyncGenerator[Update, None]:
        """Renew the work; a refusal is believed once another look shows that the work is not over."""
        assert self._renew is not None
        self._step = _Next.READ
        answer = await self._renew()
        if isinstance(answer, Accept):
            self._refusals = 0
            self._renewed = True
            self._step = _Next.SUBSCRIBE
            return
        self._refusals += 1
        if self._refusals > 1:
            yield answer

    async def _listen(self, session: PeerSession, doing: _Next) -> AsyncGenerator[Update, None]:
        self._step = _Next.READ
        self._starts += doing is _Next.START
        async with aclosing(session.stream(self._request(doing))) as events:
            async for event in events:
                for update in self._news(self._apply(event)):
                    yield update

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
        self._heard = True
        if self._silent:
            self._silent = False
            yield Silence("")
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
