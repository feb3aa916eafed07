"""Plays the published Agent and Computer of `a2c-smcp` in offices, and prints what came of each call as JSON.

Reads a JSON object on stdin: ``url``, and ``offices``, each with ``office_id``, ``agent`` and ``computer`` tokens.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from a2c_smcp.agent.auth import DefaultAgentAuthProvider
from a2c_smcp.agent.client import AsyncSMCPAgentClient
from a2c_smcp.computer.computer import Computer
from a2c_smcp.computer.mcp_clients.model import StdioServerConfig
from a2c_smcp.computer.socketio.client import SMCPComputerClient
from mcp import StdioServerParameters

NAMESPACE = "/smcp"
TOOLS = Path(__file__).with_name("tools.py")
logging.disable(logging.CRITICAL)


class Heard:
    """Keeps what an Agent hears."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.tools: list[str] = []

    async def on_computer_enter_office(self, data: Any, client: Any = None) -> None:
        self.events.append("enter")

    async def on_computer_leave_office(self, data: Any, client: Any = None) -> None:
        self.events.append("leave")

    async def on_computer_update_config(self, data: Any, client: Any = None) -> None:
        self.events.append("config")

    async def on_computer_update_tool_list(self, data: Any, client: Any = None) -> None:
        self.events.append("tool_list")

    async def on_tools_received(self, computer: str, tools: list[Any], client: Any = None) -> None:
        self.tools += [tool["name"] for tool in tools]

    async def on_desktop_updated(self, *arguments: Any) -> None:
        self.events.append("desktop")

    async def on_skills_received(self, *arguments: Any) -> None:
        self.events.append("skills")


async def until(condition: Any, seconds: float = 30.0) -> bool:
    for _ in range(int(seconds / 0.05)):
        if condition():
            return True
        await asyncio.sleep(0.05)
    return False


async def played(url: str, office: dict[str, str], scratch: Path) -> dict[str, Any]:
    """Do all that the clients can do in one office."""
    office_id, said = office["office_id"], {}
    heard = Heard()
    agent = AsyncSMCPAgentClient(
        DefaultAgentAuthProvider("alice", office_id, api_key=office["agent"]), event_handler=heard, reconnection=False
    )
    await agent.connect_to_server(url)
    said["agent_joined"] = await agent.call(
        "server:join_office", {"role": "agent", "name": "alice", "office_id": office_id}, namespace=NAMESPACE
    )
    server = StdioServerConfig(
        name="notes", server_parameters=StdioServerParameters(command=sys.executable, args=[str(TOOLS)])
    )
    settings = scratch / "settings.json"
    settings.write_text(json.dumps({"landingRoot": str(scratch / "landing")}))
    (scratch / "landing").mkdir()
    computer = Computer(
        "bob",
        mcp_servers={server},
        confirm_callback=lambda *_: True,
        auto_connect=True,
        blob_cache_root=scratch,
        skill_home=scratch / "skills",
        flag_settings_path=settings,
    )
    await computer.boot_up()
    client = SMCPComputerClient(computer=computer, reconnection=False)
    await client.connect(url, auth={"token": office["computer"]}, namespaces=[NAMESPACE])
    await client.join_office(office_id)
    said["computer_joined"] = True
    said["heard_tools"] = await until(lambda: "notes__add" in heard.tools)
    said["computers"] = [one["name"] for one in await agent.get_computers_in_office(office_id)]
    said["tools"] = sorted(tool["name"] for tool in (await agent.get_tools_from_computer("bob"))["tools"])
    ran = await agent.emit_tool_call("bob", "notes__add", {"a": 2, "b": 3}, 30)
    said["sum"] = [ran.isError, ran.content[0].text]
    said["fails"] = (await agent.emit_tool_call("bob", "notes__fail", {}, 30)).isError
    said["unknown_tool"] = (await agent.emit_tool_call("bob", "notes__nothing", {}, 30)).isError
    absent = await agent.emit_tool_call("carol", "notes__add", {}, 30)
    said["absent"] = [absent.isError, "404" in absent.content[0].text]
    image = await agent.emit_tool_call("bob", "notes__picture", {"size": 700_000}, 60)
    said["picture"] = len(getattr(image.content[0], "data", "")) or image.content[0].text
    said["config"] = sorted((await agent.get_config_from_computer("bob"))["servers"])
    said["desktop"] = (await agent.get_desktop_from_computer("bob"))["desktops"]
    said["skills"] = (await agent.get_skills("bob"))["skills"]
    uploaded = await agent.put_blob("bob", b"x" * 600_000, name_hint="note.txt")
    said["upload"] = [uploaded.total_size, Path(uploaded.landing_path).read_bytes() == b"x" * 600_000]
    await client.emit_update_config()
    await client.emit_update_tool_list()
    said["updates"] = await until(lambda: {"config", "tool_list"} <= set(heard.events))
    await client.leave_office(office_id)
    said["left"] = await until(lambda: "leave" in heard.events)
    await client.disconnect()
    await agent.disconnect()
    return said


async def main() -> None:
    asked = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as scratch:
        places = [Path(scratch) / str(number) for number in range(len(asked["offices"]))]
        for place in places:
            place.mkdir()
        done = await asyncio.gather(
            *(played(asked["url"], office, place) for office, place in zip(asked["offices"], places, strict=True))
        )
    print(json.dumps(done), flush=True)
    # The published Computer's own shutdown never ends now and then where two of them are in one process. Their servers
    # of tools end as this process does.
    os._exit(0)


asyncio.run(main())
