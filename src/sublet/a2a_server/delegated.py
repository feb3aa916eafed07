"""INVITE and START of a paired peer, told as A2A task states (AWCP 4, DESIGN 4.2)."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing
from typing import Literal, TypeVar

import structlog
from a2a.server.tasks import TaskUpdater
from a2a.types import Message, Role, TaskState
from nacl.signing import SigningKey

from sublet.a2a_server.ends import Ends
from sublet.a2a_server.outbox import Outbox
from sublet.a2a_server.refusal import wire_error
from sublet.a2a_server.work import AwcpWork, RenewRequested
from sublet.a2a_wire.names import DONE_ARTIFACT
from sublet.a2a_wire.parts import to_part
from sublet.a2a_wire.signer import signed
from sublet.daemon.ports.given_to_a2a import ExecutorApi, KnownPeer
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import (
    AWCP_URI,
    Accept,
    Done,
    Error,
    Invite,
    Progress,
    Start,
)
from sublet.protocol.prompt_state import PromptState

log = structlog.get_logger(__name__)

MAX_PROGRESS_CHARS = 16_384
"""Text in one progress event. With ten events a second, what a task prints beyond it is counted, not carried."""

AnswerT = TypeVar("AnswerT", Accept, Done, Error)


class DelegatedWork:
    """Calls the executor role and writes what it says into the task, signed.

    Args:
        executor: the executor role.
        key: our Ed25519 key.
        ends: who writes the end of a task.
    """

    def __init__(self, executor: ExecutorApi, key: SigningKey, ends: Ends) -> None:
        self._executor = executor
        self._key = key
        self._ends = ends

    async def invite(self, message: Invite, work: AwcpWork, updater: TaskUpdater) -> None:
        """Answer INVITE: ACCEPT parks the task in ``INPUT_REQUIRED``, a refusal ends it as ``REJECTED``."""
        try:
            accept = await self._executor.invite(message, work.peer, source_host=work.source_host)
        except Exception as error:
            failure = _as_failure(error, "INVITE", message.delegation_id)
            if self._ends.claim(updater.task_id):
                await self.fail(message.delegation_id, failure, TaskState.TASK_STATE_REJECTED, work.peer, updater)
            return
        await updater.requires_input(self._message(accept, work.peer, updater))

    async def run(self, message: Start, work: AwcpWork, updater: TaskUpdater) -> None:
        """Do the work of START: progress in status metadata, DONE as an artifact, a failure as signed ERROR."""
        await updater.start_work()
        end = await self._relay(message, work, updater)
        if not self._ends.claim(updater.task_id):
            return
        if isinstance(end, Done):
            await updater.add_artifact(
                [to_part(signed(end, self._key, work.peer.fingerprint))],
                artifact_id=DONE_ARTIFACT,
                name=DONE_ARTIFACT,
                extensions=[AWCP_URI],
                last_chunk=True,
            )
            await updater.complete()
            return
        cancelled = end.code is ErrorCode.CANCELLED
        state = TaskState.TASK_STATE_CANCELED if cancelled else TaskState.TASK_STATE_FAILED
        await self.fail(message.delegation_id, end, state, work.peer, updater)

    async def renew(self, renewal: RenewRequested) -> Message:
        """Answer a START for work that runs: ACCEPT with what is agreed to, or ERROR; the task goes on either way."""
        answer: Accept | Error
        try:
            answer = await self._executor.renew(renewal.start, renewal.peer, source_host=renewal.source_host)
        except Exception as error:
            failure = _as_failure(error, "START", renewal.start.delegation_id)
            answer = wire_error(renewal.start.delegation_id, failure, ErrorCode.DECLINED)
        return Message(
            message_id=str(uuid.uuid4()),
            task_id=renewal.task.id,
            context_id=renewal.task.context_id,
            role=Role.ROLE_AGENT,
            parts=[to_part(signed(answer, self._key, renewal.peer.fingerprint))],
            extensions=[AWCP_URI],
        )

    async def stop(self, delegation_id: str, peer: KnownPeer) -> None:
        """Stop a delegation in whatever state it is."""
        await self._executor.cancel(delegation_id, peer)

    async def fail(
        self, delegation_id: str, failure: SubletError, state: TaskState, peer: KnownPeer, updater: TaskUpdater
    ) -> None:
        """End the task in ``state`` with a signed ERROR in its status message."""
        fallback = ErrorCode.DECLINED if state == TaskState.TASK_STATE_REJECTED else ErrorCode.TASK_FAILED
        error = wire_error(delegation_id, failure, fallback)
        await updater.update_status(state, message=self._message(error, peer, updater))

    def _message(self, answer: AnswerT, peer: KnownPeer, updater: TaskUpdater) -> Message:
        message = updater.new_agent_message([to_part(signed(answer, self._key, peer.fingerprint))])
        message.extensions.append(AWCP_URI)
        return message

    async def _relay(self, start: Start, work: AwcpWork, updater: TaskUpdater) -> Done | SubletError:
        outbox: Outbox[Progress] = Outbox(key=lambda item: (item.phase, item.stream), merge=_joined)
        latest = _Latest()
        async with asyncio.TaskGroup() as group:
            group.create_task(_publish(outbox, latest, updater))
            try:
                return await self._collect(start, work, outbox, latest)
            except Exception as error:
                return _as_failure(error, "START", start.delegation_id)
            finally:
                outbox.close()

    async def _collect(self, start: Start, work: AwcpWork, outbox: Outbox[Progress], latest: _Latest) -> Done:
        updates = self._executor.run(start, work.peer, source_host=work.source_host)
        done: Done | None = None
        async with aclosing(updates) as stream:
            async for update in stream:
                if isinstance(update, Done):
                    done = update
                    break
                outbox.put(_bounded(latest.note(update)))
        if done is None:
            raise SubletError(ErrorCode.TASK_FAILED, "the task ended without a result")
        return done


async def _publish(outbox: Outbox[Progress], latest: _Latest, updater: TaskUpdater) -> None:
    # In metadata, not in a status message: every status message becomes task history, rewritten on each save.
    async for progress in outbox.items():
        await updater.update_status(
            TaskState.TASK_STATE_WORKING,
            metadata={AWCP_URI: latest.told(progress).model_dump(mode="json", exclude_none=True)},
        )


def _joined(earlier: Progress, later: Progress) -> Progress:
    text = earlier.text + later.text
    dropped = earlier.dropped_chars + later.dropped_chars
    return _bounded(later.model_copy(update={"text": text, "dropped_chars": dropped}))


class _Latest:
    """Lets every update say how the link and the prompts are when it is published: updates of several streams overtake
    another, and who comes back to the task reads only the last of them.
    """

    def __init__(self) -> None:
        self._link: Literal["up", "down"] | None = None
        self._prompts: list[PromptState] = []

    def note(self, progress: Progress) -> Progress:
        self._link = progress.link or self._link
        self._prompts = progress.prompts
        return progress

    def told(self, progress: Progress) -> Progress:
        return progress.model_copy(update={"link": self._link, "prompts": self._prompts})


def _bounded(progress: Progress) -> Progress:
    excess = len(progress.text) - MAX_PROGRESS_CHARS
    if excess <= 0:
        return progress
    return progress.model_copy(
        update={"text": progress.text[excess:], "dropped_chars": progress.dropped_chars + excess}
    )


def _as_failure(error: Exception, kind: str, delegation_id: str) -> SubletError:
    if isinstance(error, SubletError):
        if isinstance(error.code, LocalCode):
            log.warning("refused or failed", message=kind, delegation_id=delegation_id, reason=str(error))
        return error
    log.error("failed unexpectedly", message=kind, delegation_id=delegation_id, exc_info=error)
    return SubletError(LocalCode.INTERNAL, "an unexpected failure")
