"""Plain messages from clients that know nothing of AWCP: the default agent answers, piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import anyio
import structlog
from a2a.helpers import new_text_part
from a2a.server.tasks import TaskUpdater
from a2a.types import TaskState

from sublet.a2a_server.ends import Ends
from sublet.a2a_server.outbox import Outbox
from sublet.a2a_server.work import TextWork
from sublet.a2a_wire.parts import ANSWER_ARTIFACT
from sublet.daemon.ports.given_to_a2a import AskedBack, MessageApi
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError

log = structlog.get_logger(__name__)

MAX_ANSWER_CHARS = 200_000
RECHECK_SECONDS = 1.0
"""How often it is looked whether who asked is still let in: an agent does not go on working for anybody else."""
_CUT = "\n[the rest of the answer was cut]"


class PlainAnswers:
    """Runs the default agent on a text.

    Args:
        messages: the agent.
        ends: who writes the end of a task.
    """

    def __init__(self, messages: MessageApi, ends: Ends) -> None:
        self._messages = messages
        self._ends = ends

    async def answer(self, work: TextWork, updater: TaskUpdater) -> None:
        """Tell the answer as chunks of one artifact as it comes, whoever asked how: others may read along, and what was
        said stays said where the task is cancelled.
        """
        await updater.start_work()
        ended: SubletError | AskedBack | None = SubletError(ErrorCode.CANCELLED, "the access was taken away meanwhile")
        async with anyio.create_task_group() as group:
            group.start_soon(_until_unknown, work, group.cancel_scope)
            ended = await self._stream(work, updater)
            group.cancel_scope.cancel()
        if isinstance(ended, AskedBack):
            # No end: the task goes on with the answer.
            await updater.requires_input(updater.new_agent_message([new_text_part(ended.question)]))
            return
        failure = ended
        if not self._ends.claim(updater.task_id):
            return
        if failure is None:
            await updater.complete()
            return
        denied = failure.code in (LocalCode.POLICY_DENIED, ErrorCode.DECLINED)
        state = TaskState.TASK_STATE_REJECTED if denied else TaskState.TASK_STATE_FAILED
        await updater.update_status(state, message=updater.new_agent_message([new_text_part(_told(failure))]))

    async def _stream(self, work: TextWork, updater: TaskUpdater) -> SubletError | AskedBack | None:
        outbox: Outbox[str] = Outbox(key=lambda _: ("text", "text"), merge=str.__add__)
        async with asyncio.TaskGroup() as group:
            group.create_task(_publish_all(outbox, updater))
            try:
                return await self._collect(work, updater, outbox.put)
            finally:
                outbox.close()

    async def _collect(
        self, work: TextWork, updater: TaskUpdater, take: Callable[[str], None]
    ) -> SubletError | AskedBack | None:
        left = MAX_ANSWER_CHARS
        try:
            answer = self._messages.answer(
                work.text,
                work.subject,
                context_id=updater.context_id,
                owner=work.owner,
                chain=work.chain,
                answers=work.answers,
                narrowing=work.narrowing,
            )
            async with aclosing(answer) as pieces:
                async for piece in pieces:
                    if isinstance(piece, AskedBack):
                        return piece
                    take(piece[:left])
                    left -= len(piece)
                    if left < 0:
                        take(_CUT)
                        break
        except SubletError as error:
            return error
        except Exception:
            log.exception("the agent failed on a plain message")
            return SubletError(LocalCode.INTERNAL, "the agent failed", "Its owner finds the reason in the log.")
        return None


async def _until_unknown(work: TextWork, scope: anyio.CancelScope) -> None:
    while work.still_known():  # noqa: ASYNC110 - there is no event for a token that expires
        await anyio.sleep(RECHECK_SECONDS)
    log.warning("a caller has lost its access, and its work is ended", caller=work.owner)
    scope.cancel()


async def _publish_all(outbox: Outbox[str], updater: TaskUpdater) -> None:
    first = True
    async for text in outbox.items():
        await _publish(text, updater, first=first)
        first = False


async def _publish(text: str, updater: TaskUpdater, *, first: bool) -> None:
    await updater.add_artifact(
        [new_text_part(text)], artifact_id=ANSWER_ARTIFACT, name=ANSWER_ARTIFACT, append=not first
    )


def _told(failure: SubletError) -> str:
    if failure.code is LocalCode.POLICY_DENIED:
        return "This agent does not answer plain messages from this caller."
    if isinstance(failure.code, LocalCode) and failure.code is not LocalCode.UNAVAILABLE:
        return "The agent failed. Its owner finds the reason in the log."
    return f"{failure.message}. {failure.hint}".strip()
