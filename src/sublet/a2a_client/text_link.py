"""Plain text to agents elsewhere, without any directory: paired peers, and any A2A 1.0 agent at a public address."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final, Protocol

import anyio
import httpx
from a2a.client import A2AClientError
from a2a.client.card_resolver import parse_agent_card
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.helpers import get_message_text, new_text_part
from a2a.types import (
    AgentCard,
    Artifact,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
    TaskStatus,
)
from a2a.utils.constants import PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import A2AError
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct
from nacl.signing import SigningKey

from sublet.a2a_client.peer_http import PeerAuth
from sublet.a2a_client.public_http import open_public
from sublet.a2a_client.session import PeerSession, it_says, json_object, translated
from sublet.a2a_wire.card import CARD_PATH
from sublet.a2a_wire.names import TERMINAL
from sublet.daemon.ports.peer_link import PeerAddress, TextPiece
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.ids import fingerprint as fingerprint_of
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line

MAX_TRIES: Final = 5
"""How often a broken stream is taken up again without anything new having come."""
FIRST_PAUSE_SECONDS: Final = 0.2
CANCEL_SECONDS: Final = 3.0
_ID = Pattern(r"[\x21-\x7e]{1,128}")
_WAITS: Final = (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED)


class _Session(Protocol):
    def stream(self, request: SendMessageRequest | SubscribeToTaskRequest) -> AsyncGenerator[StreamResponse, None]: ...

    async def get_task(self, task_id: str) -> Task: ...

    async def cancel_task(self, task_id: str) -> None: ...


class A2ATextLink:
    """``TextLink`` over A2A.

    Args:
        key: our Ed25519 key.
        node_id: our node id.
        fingerprint: our key's fingerprint.
        home: what we say of our home.
    """

    def __init__(self, key: SigningKey, node_id: str, fingerprint: str, home: str = "") -> None:
        self._home = home
        self._key = key
        self._node_id = node_id
        self._fingerprint = fingerprint

    async def say(
        self, peer: PeerAddress, text: str, metadata: Mapping[str, JsonValue], context: str | None
    ) -> AsyncGenerator[TextPiece, None]:
        """``TextLink.say``."""
        audience = fingerprint_of(peer.public_key)
        session = PeerSession(peer, PeerAuth(self._key, self._node_id, self._fingerprint, audience, self._home))
        try:
            await session.card()
            async with aclosing(_Exchange(session, peer.name).run(text, metadata, context)) as said:
                async for piece in said:
                    yield piece
        finally:
            await session.aclose()

    async def say_at(self, url: str, token: str, text: str, context: str | None) -> AsyncGenerator[TextPiece, None]:
        """``TextLink.say_at``."""
        async with (
            _public_session(url, token) as session,
            aclosing(_Exchange(session, url).run(text, {}, context)) as said,
        ):
            async for piece in said:
                yield piece


class _Exchange:
    """One message and what is answered, over broken streams, until the task has ended."""

    def __init__(self, session: _Session, name: str) -> None:
        self._session = session
        self._name = name
        self._task_id = ""
        self._context = ""
        self._over = False
        self._said = 0
        self._ended: TaskStatus | None = None

    async def run(
        self, text: str, metadata: Mapping[str, JsonValue], context: str | None
    ) -> AsyncGenerator[TextPiece, None]:
        message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[new_text_part(text)])
        message.context_id = context or ""
        if metadata:
            message.metadata.CopyFrom(ParseDict(dict(metadata), Struct()))
        request: SendMessageRequest | SubscribeToTaskRequest = SendMessageRequest(message=message)
        try:
            tries = 0
            while True:
                before = self._said
                try:
                    async with aclosing(self._session.stream(request)) as events:
                        async for event in events:
                            if (piece := self._take(event)) is not None:
                                yield piece
                    broken = None
                except SubletError as error:
                    broken = error
                except A2AError as error:
                    raise SubletError(
                        ErrorCode.TASK_FAILED, f"{self._name} refused", it_says(error.message), from_peer=True
                    ) from None
                if self._over:
                    break
                if not self._task_id:
                    # It may have arrived: sending it again could have the work done twice.
                    raise broken or _odd(self._name)
                tries = 1 if self._said > before else tries + 1
                if tries > MAX_TRIES:
                    raise broken or _odd(self._name)
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2 ** (tries - 1))
                if (piece := await self._look()) is not None:
                    yield piece
                if self._over:
                    break
                request = SubscribeToTaskRequest(id=self._task_id)
            self._check()
        finally:
            if self._task_id and not self._over:
                with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_SECONDS):
                    await self._cancel()

    async def _look(self) -> TextPiece | None:
        """Read the task, after its stream broke, and return what was missed."""
        try:
            return self._whole(await self._session.get_task(self._task_id))
        except (SubletError, A2AError):
            return None

    async def _cancel(self) -> None:
        try:
            await self._session.cancel_task(self._task_id)
        except (SubletError, A2AError):
            return  # it is over, or can't be reached: its own lease ends it

    def _take(self, event: StreamResponse) -> TextPiece | None:
        kind = event.WhichOneof("payload")
        if kind == "message":
            self._over = True
            return self._piece(get_message_text(event.message), event.message.context_id)
        if kind == "task":
            return self._whole(event.task)
        if kind == "status_update":
            self._note(event.status_update.task_id, event.status_update.context_id, event.status_update.status)
            return None
        if kind == "artifact_update":
            return self._piece(_text(event.artifact_update.artifact), event.artifact_update.context_id)
        return None

    def _whole(self, task: Task) -> TextPiece | None:
        self._note(task.id, task.context_id, task.status)
        text = "".join(_text(artifact) for artifact in task.artifacts)
        return self._piece(text[self._said :], task.context_id)

    def _note(self, task_id: str, context_id: str, status: TaskStatus) -> None:
        if _ID.fullmatch(task_id):
            self._task_id = self._task_id or task_id
        if _ID.fullmatch(context_id):
            self._context = context_id
        if status.state in TERMINAL or status.state in _WAITS:
            self._over = status.state in TERMINAL
            self._ended = status
            if status.state in _WAITS:
                raise SubletError(
                    ErrorCode.TASK_FAILED,
                    f"{self._name} waits for an answer, and nobody is there to give one",
                    it_says(get_message_text(status.message)),
                    from_peer=True,
                )

    def _piece(self, text: str, context_id: str) -> TextPiece | None:
        if _ID.fullmatch(context_id):
            self._context = context_id
        self._said += len(text)
        return TextPiece(text, self._context) if text or self._context else None

    def _check(self) -> None:
        status = self._ended
        if status is None or status.state == TaskState.TASK_STATE_COMPLETED:
            return
        how = TaskState.Name(status.state).removeprefix("TASK_STATE_").lower()
        words = it_says(get_message_text(status.message))
        raise SubletError(ErrorCode.TASK_FAILED, f"the task at {self._name} ended as {how}", words, from_peer=True)


class _PublicSession:
    """JSON-RPC with an agent that nobody has paired."""

    def __init__(self, client: httpx.AsyncClient, card: AgentCard, url: str, place: PeerAddress) -> None:
        self._rpc = JsonRpcTransport(client, card, url, is_shared_httpx=True)
        self._place = place

    async def stream(
        self, request: SendMessageRequest | SubscribeToTaskRequest
    ) -> AsyncGenerator[StreamResponse, None]:
        with translated(self._place):
            if isinstance(request, SubscribeToTaskRequest):
                events = self._rpc.subscribe(request)
            else:
                events = self._rpc.send_message_streaming(request)
            async with aclosing(events) as stream:
                async for event in stream:
                    yield event

    async def get_task(self, task_id: str) -> Task:
        with translated(self._place):
            return await self._rpc.get_task(GetTaskRequest(id=task_id, history_length=0))

    async def cancel_task(self, task_id: str) -> None:
        with translated(self._place):
            await self._rpc.cancel_task(CancelTaskRequest(id=task_id))


@asynccontextmanager
async def _public_session(
    url: str, token: str, client: Callable[[], httpx.AsyncClient] = open_public
) -> AsyncIterator[_PublicSession]:
    """Read the card at ``url`` and open its JSON-RPC interface, which has to be on the same host."""
    place = PeerAddress(httpx.URL(url).host, url, b"", None)
    async with client() as http:
        http.headers[VERSION_HEADER] = PROTOCOL_VERSION_1_0
        if token:
            http.headers["Authorization"] = f"Bearer {token}"
        with translated(place):
            try:
                response = await http.get(url.rstrip("/") + CARD_PATH)
                response.raise_for_status()
            except httpx.HTTPError as error:
                raise A2AClientError(str(error)) from error
            card = parse_agent_card(json_object(response))
        yield _PublicSession(http, card, interface(card, url), place)


def interface(card: AgentCard, url: str) -> str:
    """Return where the agent of ``card`` speaks JSON-RPC: on the host of ``url``, by https, and nowhere else.

    Raises:
        SubletError: ``PEER_UNREACHABLE``.
    """
    wanted = httpx.URL(url)
    for offered in card.supported_interfaces:
        if offered.protocol_binding.upper() != "JSONRPC":
            continue
        try:
            found = httpx.URL(offered.url)
        except httpx.InvalidURL:
            continue
        if (found.scheme, found.host, found.port) == (wanted.scheme, wanted.host, wanted.port):
            return offered.url
    raise SubletError(
        LocalCode.PEER_UNREACHABLE,
        f"the card at {url} names no JSON-RPC interface on its own host",
        "Name the address of the agent itself: a card must not send us elsewhere.",
    )


def _text(artifact: Artifact) -> str:
    return "".join(part.text for part in artifact.parts)


def _odd(name: str) -> SubletError:
    return SubletError(
        LocalCode.PEER_UNREACHABLE, f"{clean_line(name, 200)} ended its stream without an end of the task", "Ask again."
    )
