"""One connection in the era that its host speaks, 2025 handshake or 2026 envelope, even if it probes first.

The SDK fixes the era at the first enveloped request, a ``server/discover`` probe included, and then refuses the
``initialize`` that some hosts send after it on the same pipe. Here a leading probe is answered by a throwaway loop,
and the first request that is no probe decides.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification, JSONRPCRequest

from sublet.mcp_server.session import CANCELLED

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.server import InitializationOptions
    from mcp.server.lowlevel import Server

    from sublet.mcp_server.session import HostSession

PROBE = "server/discover"


async def serve(
    server: Server[HostSession],
    read: MemoryObjectReceiveStream[SessionMessage | Exception],
    write: MemoryObjectSendStream[SessionMessage],
    session: HostSession,
    options: InitializationOptions,
) -> None:
    """Serve one connection until ``read`` ends.

    Args:
        server: the catalogue, shared by all connections.
        read: messages from the host.
        write: messages to the host; closed when this returns.
        session: handed to every handler as its lifespan context.
        options: what ``initialize`` is answered with.
    """
    to_loop, from_relay = anyio.create_memory_object_stream[SessionMessage | Exception](0)

    async def pass_on() -> None:
        decided = False
        async with to_loop:
            async for item in read:
                said = item.message if isinstance(item, SessionMessage) else None
                if isinstance(said, JSONRPCNotification) and said.method == CANCELLED:
                    session.cancelled(said.params)
                if not decided and isinstance(item, SessionMessage) and isinstance(said, JSONRPCRequest):
                    if said.method == PROBE:
                        await write.send(await _answer_probe(server, item, session))
                        continue
                    decided = True
                await to_loop.send(item)

    async with to_loop, from_relay, anyio.create_task_group() as group:
        group.start_soon(pass_on)
        await serve_dual_era_loop(server, from_relay, write, lifespan_state=session, init_options=options)
        group.cancel_scope.cancel()


async def _answer_probe(server: Server[HostSession], probe: SessionMessage, session: HostSession) -> SessionMessage:
    to_loop, loop_read = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    loop_write, from_loop = anyio.create_memory_object_stream[SessionMessage](1)
    async with to_loop, loop_read, loop_write, from_loop, anyio.create_task_group() as group:
        group.start_soon(partial(serve_dual_era_loop, server, loop_read, loop_write, lifespan_state=session))
        await to_loop.send(probe)
        answer = await from_loop.receive()
        await to_loop.aclose()
    return answer
