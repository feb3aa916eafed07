"""Refuses what must not become a task, before the SDK makes one, and takes credentials out of what it stores."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from a2a.server.agent_execution import RequestContext, RequestContextBuilder
from a2a.server.context import ServerCallContext
from a2a.types import Message, Role, SendMessageConfiguration, SendMessageRequest, Task, TaskState
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InvalidParamsError,
    InvalidRequestError,
    PushNotificationNotSupportedError,
    UnsupportedOperationError,
)

from sublet.a2a_server.caller import Caller, caller_of
from sublet.a2a_server.invites import PendingInvites
from sublet.a2a_server.refusal import a2a_error
from sublet.a2a_server.task_store import SqliteTaskStore
from sublet.a2a_server.work import (
    AlreadyAnswered,
    AwcpWork,
    RenewRequested,
    StopRequested,
    TextWork,
    is_delegation,
    put_work,
    task_id_for,
)
from sublet.a2a_wire.names import TERMINAL
from sublet.a2a_wire.parts import find_body, message_text, plain, trim
from sublet.daemon.ports.given_to_a2a import ExecutorApi, KnownPeer
from sublet.policy.request_rules import NARROW_KEY, NOT_NARROWED, Narrowing, told_narrowing
from sublet.protocol.bounds import MAX_PROMPT_CHARS
from sublet.protocol.canonical import JsonValue
from sublet.protocol.chain import Chain
from sublet.protocol.codec import AnyMessage, decode, narrow_bounded
from sublet.protocol.errors import ErrorCode, RemoteProtocolError, SubletError
from sublet.protocol.messages import Error, Invite, Start
from sublet.protocol.patterns import Pattern
from sublet.protocol.signed_chain import CHAIN_KEY, verify_chain
from sublet.protocol.signing import SharedNonces, verify_message

MAX_OPEN_TASKS = 100
"""Tasks per caller that have not ended: each parked INVITE costs the SDK four asyncio tasks."""
MAX_TASK_BYTES = 4 << 20
"""A task beyond it takes no further message: all that was said is kept with it, and written anew with each."""
_ID = Pattern(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
ANSWER_MODES = frozenset({"text/plain", "text/*", "*/*", "*", "text", "application/json"})
"""Of which a client accepts one; JSON is what a delegation is answered with."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One ``message/send``: its message, its caller, and the task it names, if any."""

    context: ServerCallContext
    message: Message
    caller: Caller
    task: Task | None


class AwcpContextBuilder(RequestContextBuilder):
    """The one place where a message is accepted or refused.

    Args:
        store: the task store.
        executor: asked whether a delegation belongs to the caller.
        invites: INVITEs that are being answered.
        fingerprint: our own key's, which every message must name as its recipient.
        nonces: replay memory.
        clock: Unix time in seconds.
    """

    def __init__(
        self,
        store: SqliteTaskStore,
        executor: ExecutorApi,
        invites: PendingInvites,
        fingerprint: str,
        nonces: SharedNonces,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._executor = executor
        self._invites = invites
        self._fingerprint = fingerprint
        self._nonces = nonces
        self._clock = clock

    async def build(
        self,
        context: ServerCallContext,
        params: SendMessageRequest | None = None,
        task_id: str | None = None,
        context_id: str | None = None,
        task: Task | None = None,
    ) -> RequestContext:
        """Check the message and return the context of its execution.

        Raises:
            A2AError: the message is refused; nothing was changed and no task made.
            AlreadyAnswered: an INVITE that has its task already.
            StopRequested: an ERROR for a task that is alive.
            RenewRequested: a START for a task that works.
        """
        if params is None:
            return RequestContext(context, None, task_id, context_id, task)
        named = await self._store.get(task_id, context) if task_id else None
        call = _Call(context, params.message, caller_of(context), named)
        if params.message.role != Role.ROLE_USER:
            raise InvalidParamsError(message="a message to an agent has the role of a user")
        _check_configuration(params.configuration)
        try:
            body = find_body(params.message.parts)
        except RemoteProtocolError as error:
            raise a2a_error(error) from None
        if body is None:
            context_id = await self._admit_text(call, context_id)
        else:
            task_id, context_id = await self._admit_awcp(call, body, context_id)
        trim(params.message)
        # The SDK would invent a new context id for a message that names only its task.
        return RequestContext(context, params, task_id, named.context_id if named else context_id, task)

    async def _admit_text(self, call: _Call, context_id: str | None) -> str | None:
        if call.task is not None and not _waits(call.task):
            # The SDK would queue it behind the running work and drop it at the end.
            raise UnsupportedOperationError(
                message="This task takes no further messages: send a new one, with the same contextId if you like."
            )
        if call.task is not None and call.task.ByteSize() > MAX_TASK_BYTES:
            raise UnsupportedOperationError(
                message="So much was said in this task that it takes no more: send a new one, with the same contextId."
            )
        if context_id and not _ID.fullmatch(context_id):
            raise InvalidParamsError(message="contextId: letters, digits and ._:- only, at most 128 characters")
        try:
            text = message_text(call.message)
        except RemoteProtocolError as error:
            raise a2a_error(error) from None
        if not text.strip():
            raise InvalidParamsError(message="the message has no text", data={"hint": "Send at least one text part."})
        if len(text) > MAX_PROMPT_CHARS:
            raise InvalidParamsError(message=f"at most {MAX_PROMPT_CHARS} characters of text are accepted")
        chain = self._chain(call, text)
        if call.task is None:
            await self._check_open_tasks(call)
        caller = call.caller
        answers = call.task is not None
        narrowing = _narrowing(call)
        work = TextWork(text, caller.subject, caller.owner, chain, answers, caller.still_known, narrowing)
        put_work(call.context, work)
        return context_id

    def _chain(self, call: _Call, text: str) -> Chain:
        """Return who called until here, where the message says so."""
        if not call.message.HasField("metadata") or CHAIN_KEY not in call.message.metadata.fields:
            return Chain()
        try:
            return verify_chain(
                narrow_bounded(plain(call.message.metadata.fields[CHAIN_KEY])),
                text,
                recipient=self._fingerprint,
                now=int(self._clock()),
                nonces=self._nonces.of(call.caller.owner),
            )
        except SubletError as error:
            raise a2a_error(error, InvalidRequestError) from None

    async def _admit_awcp(
        self, call: _Call, body: dict[str, JsonValue], context_id: str | None
    ) -> tuple[str, str | None]:
        peer = call.caller.peer
        if peer is None:
            raise _refused(
                InvalidRequestError,
                ErrorCode.DECLINED,
                "only a paired daemon may delegate; this token is for plain messages",
                "Run `sublet pair` on this side and `sublet peers add` on yours.",
            )
        message = self._verified(body, peer, call.caller.owner)
        match message:
            case Invite():
                task_id = await self._admit_invite(call, message, context_id)
            case Start():
                task_id = await self._admit_start(call, message, peer)
            case Error():
                raise self._stop(call, message, peer)
            case _:
                raise _refused(
                    UnsupportedOperationError,
                    ErrorCode.DECLINED,
                    f"{message.type} is a message from executor to delegator",
                    "A delegator sends INVITE, START and ERROR.",
                )
        put_work(call.context, AwcpWork(message, peer, call.caller.source_host))
        return task_id, message.delegation_id

    async def _admit_invite(self, call: _Call, message: Invite, context_id: str | None) -> str:
        if context_id not in (None, message.delegation_id):
            raise _refused(
                InvalidParamsError,
                ErrorCode.DECLINED,
                "contextId and delegation_id differ",
                "Leave contextId out, or set it to the delegation id.",
            )
        task_id = task_id_for(call.caller.owner, message.delegation_id)
        if call.task is not None and call.task.id != task_id:
            raise _out_of_order("INVITE", "on the task of another delegation")
        await self._check_open_tasks(call)
        while True:
            known = await self._store.get(task_id, call.context)
            if known is not None and known.status.state != TaskState.TASK_STATE_SUBMITTED:
                await self._check_same(call, message)
                raise AlreadyAnswered(known)
            # Nothing may be awaited between this and the task, or a twin slips through.
            if self._invites.begin(task_id):
                return task_id
            if not await self._invites.wait(task_id):
                raise _refused(
                    UnsupportedOperationError,
                    ErrorCode.DECLINED,
                    "the same INVITE is still being answered",
                    "Ask again later, or cancel the task.",
                )

    async def _check_same(self, call: _Call, message: Invite) -> None:
        """Refuse what comes under the id of another INVITE: its answer would be taken for an answer to this one."""
        assert call.caller.peer is not None, "only a peer invites"
        try:
            await self._executor.check_invite(message, call.caller.peer)
        except SubletError as error:
            raise a2a_error(error, UnsupportedOperationError) from None

    async def _admit_start(self, call: _Call, message: Start, peer: KnownPeer) -> str:
        task = call.task
        if task is None:
            raise _out_of_order("START", "without the task of an accepted INVITE")
        if task.context_id != message.delegation_id:
            raise _out_of_order("START", "on the task of another delegation")
        running = task.status.state == TaskState.TASK_STATE_WORKING
        if not running and task.status.state != TaskState.TASK_STATE_INPUT_REQUIRED:
            raise _out_of_order("START", f"while the task is {TaskState.Name(task.status.state)}")
        try:
            await self._executor.check_owner(message.delegation_id, peer)
        except SubletError as error:
            raise a2a_error(error, UnsupportedOperationError) from None
        if running:
            raise RenewRequested(task, message, peer, call.caller.source_host)
        return task.id

    async def _check_open_tasks(self, call: _Call) -> None:
        if await self._store.count_open(call.caller.owner) >= MAX_OPEN_TASKS:
            raise _refused(
                UnsupportedOperationError,
                ErrorCode.DECLINED,
                f"{MAX_OPEN_TASKS} tasks of this caller are open",
                "Cancel some of them, or wait for their end.",
            )

    def _stop(self, call: _Call, message: Error, peer: KnownPeer) -> Exception:
        if call.task is None or call.task.context_id != message.delegation_id:
            return _out_of_order("ERROR", "without the task of its delegation")
        if call.task.status.state in TERMINAL:
            return AlreadyAnswered(call.task)
        return StopRequested(call.task, message, peer)

    def _verified(self, body: dict[str, JsonValue], peer: KnownPeer, owner: str) -> AnyMessage:
        try:
            message = decode(body)
        except RemoteProtocolError as error:
            raise a2a_error(error) from None
        try:
            verify_message(
                body,
                signer=peer.public_key,
                recipient=self._fingerprint,
                now=int(self._clock()),
                nonces=self._nonces.of(owner),
            )
        except SubletError as error:
            raise a2a_error(error, InvalidRequestError) from None
        return message


def _check_configuration(asked: SendMessageConfiguration) -> None:
    """Refuse what would be ignored otherwise, so that a client does not wait for it.

    Raises:
        A2AError: notifications are to be pushed, or no kind of answer is accepted that there is here.
    """
    if asked.HasField("task_push_notification_config"):
        raise PushNotificationNotSupportedError(
            message="this agent pushes no notifications, as its card says",
            data={"hint": "Leave the configuration out, and stream or ask for the task."},
        )
    modes = [mode.partition(";")[0].strip().lower() for mode in asked.accepted_output_modes]
    if modes and not set(modes) & ANSWER_MODES:
        raise ContentTypeNotSupportedError(
            message="this agent answers with text", data={"hint": "Accept text/plain, or leave the modes out."}
        )


def _waits(task: Task) -> bool:
    """Tell whether a plain task waits for the answer to a question."""
    return task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED and not is_delegation(task)


def _out_of_order(kind: str, why: str) -> A2AError:
    return _refused(
        UnsupportedOperationError,
        ErrorCode.DECLINED,
        f"{kind} {why}",
        "Send INVITE first, then START on the task that answered it.",
    )


def _refused(kind: type[A2AError], code: ErrorCode, message: str, hint: str) -> A2AError:
    return a2a_error(SubletError(code, message, hint), kind)


def _narrowing(call: _Call) -> Narrowing:
    """Return what the message leaves of what agents may call for it."""
    if not call.message.HasField("metadata") or NARROW_KEY not in call.message.metadata.fields:
        return NOT_NARROWED
    try:
        return told_narrowing(narrow_bounded(plain(call.message.metadata.fields[NARROW_KEY])))
    except SubletError as error:
        raise a2a_error(error, InvalidParamsError) from None
