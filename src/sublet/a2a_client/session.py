"""One peer as we call it: its verified card, its JSON-RPC, and what its errors mean to us."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import httpx
import structlog
from a2a.client import A2AClientError, ClientCallContext
from a2a.client.card_resolver import parse_agent_card
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.extensions.common import HTTP_EXTENSION_HEADER
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
)
from a2a.utils.constants import PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import A2AError, InternalError

from sublet.a2a_client.peer_http import PeerAuth, open_client
from sublet.a2a_wire.card import CARD_PATH, verify_card
from sublet.a2a_wire.names import TERMINAL
from sublet.daemon.ports.peer_link import NotConnected, PeerAddress
from sublet.protocol.bounded_json import parse_json
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError, error_code
from sublet.protocol.home_token import OWN_HOME
from sublet.protocol.ids import fingerprint
from sublet.protocol.messages import AWCP_URI
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line

log = structlog.get_logger(__name__)

CARD_FRESH_SECONDS = 60.0
DEFAULT_RETRY_AFTER_SECONDS = 2
"""For a busy peer that does not say when to ask again."""
MAX_RETRY_AFTER_SECONDS = 3600
_REFUSALS = (httpx.codes.BAD_REQUEST, httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND)
_SECONDS = Pattern(r"[0-9]{1,6}")


class PeerSession:
    """Connections to one peer.

    Args:
        peer: where it is and what is pinned of it.
        auth: signs our requests to it.
    """

    def __init__(self, peer: PeerAddress, auth: PeerAuth) -> None:
        self.peer = peer
        self._http = open_client(peer.a2a_url, peer.tls_certificate, auth)
        self._http.headers[VERSION_HEADER] = PROTOCOL_VERSION_1_0
        self._base = peer.a2a_url.rstrip("/")
        # The pinned address, whatever the card says: a card must not send us elsewhere.
        self._rpc = JsonRpcTransport(self._http, AgentCard(), self._base + "/", is_shared_httpx=True)
        self._context = ClientCallContext(service_parameters={HTTP_EXTENSION_HEADER: AWCP_URI})
        self._card: AgentCard | None = None
        self._etag = ""
        self._fetched_at = 0.0
        self._lock = asyncio.Lock()

    async def card(self, *, anew: bool = False) -> AgentCard:
        """Return the peer's card, its signature checked against the pinned key.

        Args:
            anew: ask the peer even where the card that we remember is fresh; one that has not changed is not sent.

        Raises:
            SubletError: ``PEER_UNREACHABLE``, or ``KEY_CHANGED`` where another key, or none, has signed it.
        """
        async with self._lock:
            if anew or self._card is None or time.monotonic() - self._fetched_at > CARD_FRESH_SECONDS:
                self._card = await self._fetch_card(self._card)
                self._fetched_at = time.monotonic()
            return self._card

    async def post(self, path: str, body: object) -> None:
        """Post JSON to one of the routes that only daemons like ours have.

        Raises:
            SubletError: ``PEER_UNREACHABLE``, or the peer's refusal.
        """
        with translated(self.peer):
            try:
                response = await self._http.post(self._base + path, json=body)
                if response.status_code in _REFUSALS:
                    code, said, hint = told(response)
                    raise SubletError(
                        error_code(code) or LocalCode.UNAVAILABLE,
                        said or f"{self.peer.name} answers with HTTP {response.status_code}",
                        hint,
                        from_peer=True,
                    )
                response.raise_for_status()
            except httpx.HTTPError as error:
                raise A2AClientError(str(error)) from error

    async def send(self, request: SendMessageRequest) -> Task:
        """Send a message and return its task, once it waits or has ended."""
        try:
            with translated(self.peer):
                response = await self._rpc.send_message(request, context=self._context)
                if not response.HasField("task"):
                    raise TypeError("the answer is no task")
                return response.task
        except SubletError as error:
            if error.code is ErrorCode.AUTH_FAILED:
                # Who does not know us may be somebody else than the card that we remember says.
                self._card = None
                await self.card()
            raise

    async def ask(self, request: SendMessageRequest) -> Message:
        """Send a message about a task that works and return the message that answers it."""
        with translated(self.peer):
            response = await self._rpc.send_message(request, context=self._context)
            if not response.HasField("message"):
                raise TypeError("the answer is no message")
            return response.message

    async def get_task(self, task_id: str) -> Task:
        """Return the task as it is now, without its history."""
        with translated(self.peer):
            return await self._rpc.get_task(GetTaskRequest(id=task_id, history_length=0), context=self._context)

    async def tasks_of(self, context_id: str) -> dict[str, bool]:
        """Return the ids of our tasks of that context, and whether each is open: has not ended."""
        with translated(self.peer):
            answer = await self._rpc.list_tasks(ListTasksRequest(context_id=context_id), context=self._context)
            return {task.id: task.status.state not in TERMINAL for task in answer.tasks}

    async def cancel_task(self, task_id: str) -> None:
        """Ask the peer to end a task of ours, and return once it has answered.

        Raises:
            SubletError: what the peer answers, or ``PEER_UNREACHABLE``.
        """
        with translated(self.peer):
            await self._rpc.cancel_task(CancelTaskRequest(id=task_id), context=self._context)

    async def stream(
        self, request: SendMessageRequest | SubscribeToTaskRequest
    ) -> AsyncGenerator[StreamResponse, None]:
        """Send a message, or subscribe to a task, and yield what happens."""
        with translated(self.peer):
            if isinstance(request, SubscribeToTaskRequest):
                events = self._rpc.subscribe(request, context=self._context)
            else:
                events = self._rpc.send_message_streaming(request, context=self._context)
            async with aclosing(events) as stream:
                async for event in stream:
                    yield event

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _fetch_card(self, known: AgentCard | None) -> AgentCard:
        headers = {"If-None-Match": self._etag} if known is not None and self._etag else {}
        with translated(self.peer):
            try:
                response = await self._http.get(self._base + CARD_PATH, headers=headers)
                if response.status_code == httpx.codes.NOT_MODIFIED and known is not None:
                    return known
                response.raise_for_status()
            except httpx.HTTPError as error:
                raise A2AClientError(str(error)) from error
            card = parse_agent_card(json_object(response))
        if not verify_card(card, self.peer.public_key):
            raise SubletError(
                LocalCode.KEY_CHANGED,
                f"the card of {self.peer.name} is not signed by the key {fingerprint(self.peer.public_key)}, "
                "which is pinned: somebody may be posing as it",
                f"If its key was changed on purpose, run `sublet peers remove {self.peer.name}` and pair again.",
            )
        self._etag = response.headers.get("etag", "")
        return card


@contextmanager
def translated(peer: PeerAddress) -> Iterator[None]:
    """Turn what keeps us from the peer into ``SubletError``; what the peer itself answers stays an ``A2AError``.

    Everything that a library of ours raises over an answer is the peer's fault, whatever it is: an answer ends nothing.
    """
    try:
        yield
    except (A2AClientError, InternalError) as error:
        raise _obstacle(peer, error) from error
    except (A2AError, SubletError):
        raise
    except Exception as error:
        log.info("a peer's answer is not understood", peer=peer.name, reason=f"{type(error).__name__}: {error}"[:300])
        raise SubletError(
            LocalCode.PEER_UNREACHABLE,
            f"{peer.name} at {peer.a2a_url} answers, but not as an A2A agent does",
            "Is another program listening at that address?",
        ) from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error`` and what it came from, one after the other."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _obstacle(peer: PeerAddress, error: A2AError) -> SubletError:
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return SubletError(
                LocalCode.KEY_CHANGED,
                f"{peer.name} does not show the certificate that is pinned for it: {cause.verify_message}",
                f"If it was changed on purpose, run `sublet peers remove {peer.name}` and pair again.",
            )
        if isinstance(cause, httpx.HTTPStatusError):
            return _http_obstacle(peer, cause.response)
    said = clean_line(str(error), 300)
    kind = NotConnected if any(isinstance(cause, httpx.ConnectError) for cause in causes(error)) else SubletError
    if any(isinstance(cause, httpx.NetworkError | httpx.TimeoutException) for cause in causes(error)):
        return kind(
            LocalCode.PEER_UNREACHABLE,
            f"{peer.name} at {peer.a2a_url} can't be reached: {said}",
            f"Is its daemon running? {_if_moved(peer)}",
        )
    return SubletError(
        LocalCode.PEER_UNREACHABLE,
        f"{peer.name} at {peer.a2a_url} can't be reached",
        f"Is its daemon running? {_if_moved(peer)} What came of the call: {said}",
        from_peer=True,
    )


def _if_moved(peer: PeerAddress) -> str:
    return f"If its address changed, run `sublet pair` there and `sublet peers add LINK --name {peer.name}` here."


def _http_obstacle(peer: PeerAddress, response: httpx.Response) -> SubletError:
    code, said, hint = told(response)
    if code == LocalCode.HOME_COPIED and response.status_code == httpx.codes.UNAUTHORIZED:
        return SubletError(
            LocalCode.HOME_COPIED,
            f"{peer.name} does not let us in: this home is a copy of another one, whose daemon runs as well",
            f"Make this a daemon of its own, which pairs anew: sublet down, then {OWN_HOME}",
        )
    words = it_says(f"{said} {hint}")
    if response.status_code == httpx.codes.UNAUTHORIZED:
        advice = f"Pair again with it, both ways. {words}".rstrip()
        return SubletError(ErrorCode.AUTH_FAILED, f"{peer.name} does not let us in", advice, from_peer=bool(words))
    return SubletError(
        LocalCode.PEER_UNREACHABLE,
        f"{peer.name} answers with HTTP {response.status_code}",
        words or "Try again later.",
        from_peer=bool(words),
        retry_after_seconds=_retry_after(response),
    )


def _retry_after(response: httpx.Response) -> int | None:
    """Return when a peer that is busy wants to be asked again; None for other answers."""
    if response.status_code not in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE):
        return None
    said = response.headers.get("retry-after", "")
    return min(int(said), MAX_RETRY_AFTER_SECONDS) if _SECONDS.fullmatch(said) else DEFAULT_RETRY_AFTER_SECONDS


def it_says(words: str) -> str:
    """Return a peer's words as a hint, empty where there are none.

    They stay out of messages that name an obstacle: those are shown as ours, as the reason why a peer is not usable.
    """
    said = clean_line(words, 500)
    return f"It says: {said}" if said else ""


def json_object(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object that a peer answers.

    Raises:
        ValueError: it is none, or breaks a bound.
    """
    found = parse_json(response.content)
    if not isinstance(found, dict):
        raise ValueError("the answer is no object")
    return found


def told(response: httpx.Response) -> tuple[str, str, str]:
    """Return code, message and hint of an error answer, cleaned; empty where it has none."""
    try:
        error = json_object(response)["error"]
        code, message, hint = (error.get(name, "") for name in ("code", "message", "hint"))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, httpx.StreamError):
        return "", "", ""
    return clean_line(str(code), 64), clean_line(str(message), 500), clean_line(str(hint), 500)
