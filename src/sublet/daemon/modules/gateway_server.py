"""Where gateways of the protocols http and websocket connect: loopback, a token of each, and no page of a browser.

``POST /v1/gateways/ID/messages`` takes lines, ``GET /v1/gateways/ID/stream`` is what the daemon says as server-sent
events, and ``/v1/gateways/ID/ws`` carries both directions. The messages are those of ``protocol.gateway``.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import AsyncIterator
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from sublet.daemon.net.http_connection import DeadlineProtocol
from sublet.daemon.net.http_server import QuietServer, server_config
from sublet.protocol.gateway import MAX_LINE_BYTES, GatewayLines, MalformedGatewayMessage
from sublet.supervisor.gateways.session import GatewaySession

MAX_CONNECTIONS: Final = 128
MAX_HEAD_BYTES: Final = 16 << 10
HEARTBEAT_SECONDS: Final = 15.0
HOST: Final = "127.0.0.1"


class KnowsGateways(Protocol):
    """What the server asks of whoever knows the gateways."""

    def token(self, gateway_id: str, protocol: str) -> str | None:
        """Return the token of a gateway of that protocol which may connect now; None for any other."""

    def connected(self, gateway_id: str) -> GatewaySession:
        """Return a new session, which ends the one before."""

    def session(self, gateway_id: str) -> GatewaySession | None:
        """Return the session of a gateway that is connected."""

    def lost(self, gateway_id: str, session: GatewaySession, why: str) -> None:
        """Take note that a connection is over."""


class GatewayServer:
    """Listens while ``serve`` runs."""

    def __init__(self, known: KnowsGateways) -> None:
        self._known = known
        self._stopping = anyio.Event()
        self._socket: socket.socket | None = None

    @property
    def port(self) -> int | None:
        """The port, once it listens."""
        return None if self._socket is None else int(self._socket.getsockname()[1])

    async def serve(self) -> None:
        """Serve until cancelled."""
        self._stopping = anyio.Event()
        listening = socket.create_server((HOST, 0))
        self._socket = listening
        routes = [
            Route("/v1/gateways/{id}/messages", self._messages, methods=["POST"]),
            Route("/v1/gateways/{id}/stream", self._stream, methods=["GET"]),
            WebSocketRoute("/v1/gateways/{id}/ws", self._websocket),
        ]
        config = server_config(
            Starlette(routes=routes),
            DeadlineProtocol,
            connections=MAX_CONNECTIONS,
            head_bytes=MAX_HEAD_BYTES,
            drain_seconds=1,
            date=False,
            message_bytes=MAX_LINE_BYTES,
        )
        try:
            await QuietServer(config).serve_until_cancelled(listening, self._stopping.set)
        finally:
            listening.close()
            self._socket = None

    def _refusal(self, request: HTTPConnection, protocol: str) -> int | None:
        """Return the status that refuses a request, or None where it may go on."""
        if request.headers.get("host") not in (f"{HOST}:{self.port}", f"localhost:{self.port}"):
            return 421
        if "origin" in request.headers:
            # A page of a browser, whatever its address: gateways are programs.
            return 403
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        token = self._known.token(request.path_params["id"], protocol)
        # Compared also where there is no such gateway, so that time tells nothing of names.
        same = hmac.compare_digest(given.encode(), (token or "x" * 43).encode())
        return None if token and same and scheme.lower() == "bearer" else 401

    async def _messages(self, request: Request) -> Response:
        if status := self._refusal(request, "http"):
            return JSONResponse({"error": "refused"}, status_code=status)
        session = self._known.session(request.path_params["id"])
        if session is None:
            return JSONResponse({"error": "open the stream first"}, status_code=409)
        lines, taken, size = GatewayLines(), 0, 0
        try:
            async for data in request.stream():
                size += len(data)
                if size > 4 * MAX_LINE_BYTES:
                    return JSONResponse({"error": "too large"}, status_code=413)
                for line in lines.receive(data):
                    await session.paced()
                    session.receive(line)
                    taken += 1
            for line in lines.receive(b"\n"):
                session.receive(line)
                taken += 1
        except MalformedGatewayMessage as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        except ClientDisconnect:
            return Response(status_code=499)
        return JSONResponse({"taken": taken}, status_code=202)

    async def _stream(self, request: Request) -> Response:
        if status := self._refusal(request, "http"):
            return JSONResponse({"error": "refused"}, status_code=status)
        one = request.path_params["id"]
        session = self._known.connected(one)
        return StreamingResponse(
            self._events(one, session), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _events(self, module_id: str, session: GatewaySession) -> AsyncIterator[str]:
        try:
            yield ": connected\n\n"
            while not self._stopping.is_set():
                line = await self._next(session)
                if line is None:
                    return
                yield f"data: {line.decode().rstrip()}\n\n" if line else ": alive\n\n"
        finally:
            self._known.lost(module_id, session, "its stream ended")

    async def _next(self, session: GatewaySession) -> bytes | None:
        """Return what is to be sent next, nothing after a while, or None at the end."""
        found: list[bytes | None] = []

        async def receive(scope: anyio.CancelScope) -> None:
            found.append(await session.next_line())
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(receive, group.cancel_scope)
            with anyio.move_on_after(HEARTBEAT_SECONDS):
                await self._stopping.wait()
            group.cancel_scope.cancel()
        if found:
            return found[0]
        return None if self._stopping.is_set() else b""

    async def _websocket(self, websocket: WebSocket) -> None:
        if self._refusal(websocket, "websocket"):
            await websocket.close(1008)
            return
        await websocket.accept()
        module_id = websocket.path_params["id"]
        session = self._known.connected(module_id)
        why = "its connection ended"
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_sent, websocket, session, group)
                group.start_soon(_ended, self._stopping, group)
                try:
                    while True:
                        said = (await websocket.receive_text()).encode()
                        await session.paced()
                        session.receive(said)
                except (WebSocketDisconnect, KeyError):
                    pass
                except MalformedGatewayMessage as error:
                    why = f"what it says is not the protocol: {error}"
                group.cancel_scope.cancel()
        finally:
            self._known.lost(module_id, session, why)


async def _sent(websocket: WebSocket, session: GatewaySession, group: TaskGroup) -> None:
    while (line := await session.next_line()) is not None:
        await websocket.send_text(line.decode().rstrip())
    group.cancel_scope.cancel()


async def _ended(stopping: anyio.Event, group: TaskGroup) -> None:
    await stopping.wait()
    group.cancel_scope.cancel()
