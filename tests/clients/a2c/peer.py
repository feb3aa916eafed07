"""The published server and Agent of `a2c-smcp` as peers of a Computer that is somebody else's.

Reads a JSON object on stdin: ``secret``, ``office_id`` and ``computer``. Prints the URL of the server, then, once that
Computer has joined, what came of each call, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
from typing import Any

import socketio
import uvicorn
from a2c_smcp import PROTOCOL_VERSION
from a2c_smcp.agent.auth import DefaultAgentAuthProvider
from a2c_smcp.agent.client import AsyncSMCPAgentClient
from a2c_smcp.server import A2CProtocolVersionASGIMiddleware, SMCPNamespace
from a2c_smcp.server.auth import DefaultAuthenticationProvider

NAMESPACE = "/smcp"
logging.disable(logging.CRITICAL)


async def found(agent: Any, office_id: str, name: str) -> bool:
    for _ in range(600):
        if name in [one["name"] for one in await agent.get_computers_in_office(office_id)]:
            return True
        await asyncio.sleep(0.05)
    return False


async def main() -> None:
    asked = json.loads(sys.stdin.readline())
    office_id, computer = asked["office_id"], asked["computer"]
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = socketio.AsyncServer(async_mode="asgi", logger=False, engineio_logger=False)
    server.register_namespace(SMCPNamespace(DefaultAuthenticationProvider(asked["secret"])))
    app = A2CProtocolVersionASGIMiddleware(
        socketio.ASGIApp(server, socketio_path="/socket.io"),
        socketio_path="/socket.io",
        server_version=PROTOCOL_VERSION,
    )
    serving = asyncio.create_task(uvicorn.Server(uvicorn.Config(app, log_level="critical")).serve([listening]))
    print(json.dumps({"url": url}), flush=True)
    agent = AsyncSMCPAgentClient(DefaultAgentAuthProvider("alice", office_id, api_key=asked["secret"]))
    await agent.connect_to_server(url)
    await agent.call(
        "server:join_office", {"role": "agent", "name": "alice", "office_id": office_id}, namespace=NAMESPACE
    )
    said: dict[str, Any] = {"joined": await found(agent, office_id, computer)}
    said["tools"] = sorted(tool["name"] for tool in (await agent.get_tools_from_computer(computer))["tools"])
    ran = await agent.emit_tool_call(computer, "notes__add", {"a": 2, "b": 3}, 30)
    said["sum"] = [ran.isError, ran.content[0].text]
    said["fails"] = (await agent.emit_tool_call(computer, "notes__fail", {}, 30)).isError
    said["unknown_tool"] = (await agent.emit_tool_call(computer, "notes__nothing", {}, 30)).isError
    image = await agent.emit_tool_call(computer, "notes__picture", {"size": 700_000}, 60)
    said["picture"] = len(getattr(image.content[0], "data", ""))
    long = await agent.emit_tool_call(computer, "notes__long", {"size": 1_200_000}, 30)
    said["too_long"] = [long.isError, "bytes" in long.content[0].text]
    said["config"] = sorted((await agent.get_config_from_computer(computer))["servers"])
    said["desktop"] = (await agent.get_desktop_from_computer(computer))["desktops"]
    said["skills"] = (await agent.get_skills(computer))["skills"]
    uploaded = await agent.put_blob(computer, b"x" * 600_000, name_hint="../note.txt")
    said["upload"] = [uploaded.total_size, uploaded.landing_path]
    print(json.dumps(said), flush=True)
    serving.cancel()
    os._exit(0)


asyncio.run(main())
