"""Serves offices with the published server of `a2c-smcp` on a free port of loopback, and prints its URL.

Whoever shows the token in the first argument may do anything. It ends once nothing can be read on stdin any more.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys

import socketio
import uvicorn
from a2c_smcp.server import A2CProtocolVersionASGIMiddleware, SMCPNamespace
from a2c_smcp.server.auth import DefaultAuthenticationProvider

logging.disable(logging.CRITICAL)


async def main(token: str) -> None:
    sio = socketio.AsyncServer(async_mode="asgi", cors_allowed_origins=[], logger=False, engineio_logger=False)
    sio.register_namespace(SMCPNamespace(DefaultAuthenticationProvider(token)))
    app = A2CProtocolVersionASGIMiddleware(socketio.ASGIApp(sio, socketio_path="/socket.io"))
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    serving = asyncio.create_task(server.serve([listening]))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = server.force_exit = True
    await serving


asyncio.run(main(sys.argv[1]))
