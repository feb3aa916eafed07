"""What an Agent asks of a Computer, with a real MCP server behind it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from sublet.app.computer import server_commands
from sublet.office_client import computer as module
from sublet.office_client import servers
from sublet.office_client.blobs import Landing
from sublet.office_client.computer import Computer
from sublet.office_client.servers import ToolServer
from sublet.office_client.serving import Changes

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).parents[1] / "support" / "tool_program.py"


class Asked:
    """An Agent that asks a Computer."""

    def __init__(self, computer: Computer) -> None:
        self.computer = computer
        self.number = 0

    async def read(self, what: str, **fields: object) -> Any:
        self.number += 1
        data: Any = {"agent": "alice", "req_id": f"r{self.number}", "computer": "bob", **fields}
        return await self.computer.answer(f"client:{what}", (data,))

    async def use(self, tool: str, *, req_id: str | None = None, timeout: float = 60, **params: object) -> Any:
        given = {} if req_id is None else {"req_id": req_id}
        return await self.read("tool_call", tool_name=tool, params=params, timeout=timeout, **given)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Asked, ToolServer, Changes]]:
    changes = Changes()
    [command] = server_commands([[sys.executable, str(PROGRAM)]], ["notes"], os.environ, Path.cwd())
    server = ToolServer(command, changes.note)
    asked = Asked(Computer("bob", [server], Landing(None, time.monotonic)))
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        with anyio.fail_after(60):
            await server.started.wait()
        yield asked, server, changes
        group.cancel_scope.cancel()


async def test_it_answers_all_that_an_agent_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "FIRST_PAUSE", 0.02)
    async with serving() as (agent, server, changes):
        await reads(agent)
        await calls(agent)
        await cancels(agent, tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(module, "MAX_CALLS", 0)
            assert "0 calls are under way" in (await agent.use("notes__add", a=1, b=2))["content"][0]["text"]
        await ends(agent, server, changes)


async def reads(agent: Asked) -> None:
    tools = await agent.read("get_tools")
    assert tools["req_id"] == "r1"
    added = next(tool for tool in tools["tools"] if tool["name"] == "notes__add")
    assert (added["bundle_id"], added["description"]) == ("notes", "Add two numbers.")
    assert set(added) == {"name", "bundle_id", "description", "params_schema", "return_schema", "meta"}
    assert added["params_schema"]["required"] == ["a", "b"]
    config = await agent.read("get_config")
    parameters = config["servers"]["notes"]["server_parameters"]
    assert (parameters["args"], parameters["env"], parameters["cwd"]) == ([], None, None)
    assert str(PROGRAM) not in str(config)
    window = "window://notes/main"
    shown = [f"{window}\n\nwhat is on the screen"]
    assert (await agent.read("get_desktop"))["desktops"] == shown
    assert (await agent.read("get_desktop", window=window))["desktops"] == shown
    assert (await agent.read("get_desktop", window="window://notes"))["desktops"] == []
    assert (await agent.read("get_desktop", desktop_size=0))["desktops"] == []
    resources = await agent.read("get_resources", mcp_server="notes")
    assert [one["uri"] for one in resources["resources"]] == [window]
    assert (await agent.read("get_resources", mcp_server="other"))["code"] == 4014
    assert (await agent.read("get_skills"))["skills"] == []
    assert (await agent.read("get_skill", name="x"))["code"] == 4014
    assert (await agent.read("put_blob"))["details"]["reason"] == "forbidden"
    assert (await agent.read("get_blob", blob_handle="x"))["details"]["reason"] == "gone"
    assert (await agent.read("get_tools", computer="carol"))["code"] == 404
    assert (await agent.computer.answer("client:nothing", ({},)))["code"] == 404  # type: ignore[index,call-overload]
    assert (await agent.read("tool_call"))["code"] == 400


async def calls(agent: Asked) -> None:
    added = await agent.use("notes__add", a=2, b=3)
    assert (added["isError"], added["structuredContent"]) == (False, {"result": 5})
    assert "_meta" not in added
    assert (await agent.use("notes__fail"))["isError"] is True
    for unknown in ("notes__nothing", "add", "../notes__add"):
        assert "there is no tool" in (await agent.use(unknown))["content"][0]["text"]
    [part] = (await agent.use("notes__picture", size=70_000))["content"]
    assert (part["type"], part["data"], part["_meta"]["a2c_total_size"]) == ("image", "", 70_000)
    piece = await agent.read("get_blob", blob_handle=part["_meta"]["a2c_blob_handle"])
    assert (piece["eof"], piece["mime_type"]) == (True, "image/png")
    [part] = (await agent.use("notes__picture", size=100))["content"]
    assert part["data"]


def has_begun(noted: Path) -> bool:
    """Tell whether a call has said so; the file is there a moment before that stands in it."""
    return noted.exists() and noted.read_text() != ""


async def cancels(agent: Asked, tmp_path: Path) -> None:
    late = await agent.use("notes__wait", timeout=0.5, file=str(tmp_path / "late"), seconds=60)
    assert (late["isError"], late["meta"]) == (True, {"a2c_timeout": True})
    noted = tmp_path / "noted"
    waiting = asyncio.ensure_future(agent.use("notes__wait", req_id="one", file=str(noted), seconds=60))
    while not has_begun(noted):
        await anyio.sleep(0.02)
    twice = await agent.use("notes__wait", req_id="one", file=str(noted), seconds=0)
    assert "is under way" in twice["content"][0]["text"]
    for data in ({}, {"agent": "eve", "req_id": "one"}, {"agent": "alice", "req_id": "two"}):
        agent.computer.hear("notify:tool_call_cancel", (data,))  # type: ignore[arg-type]
    agent.computer.hear("notify:enter_office", ({"agent": "alice", "req_id": "one"},))
    await anyio.sleep(0)
    assert not waiting.done()
    agent.computer.hear("notify:tool_call_cancel", ({"agent": "alice", "req_id": "one"},))
    cancelled = await waiting
    assert cancelled["meta"] == {"a2c_cancelled": True, "a2c_cancel_reason": "agent_requested"}
    noted.unlink()
    waiting = asyncio.ensure_future(agent.use("notes__wait", req_id="two", file=str(noted), seconds=60))
    while not has_begun(noted):
        await anyio.sleep(0.02)
    waiting.cancel()  # as its connection ends
    await asyncio.wait([waiting])
    again = await agent.use("notes__wait", req_id="two", file=str(noted), seconds=0)
    assert "not run a second time" in again["content"][0]["text"]
    assert noted.read_text() == "begun\n"
    assert (await agent.use("notes__add", req_id="one", a=1, b=1))["isError"] is False
    # Its result has not left: who has asked does not know, and may ask again.
    lost: Any = {"agent": "alice", "req_id": "one", "computer": "bob", "tool_name": "notes__add", "params": {}}
    agent.computer.unsent("client:get_tools", (lost,))
    agent.computer.unsent("client:tool_call", ({},))
    assert (await agent.use("notes__add", req_id="one", a=1, b=1))["isError"] is False
    agent.computer.unsent("client:tool_call", (lost,))
    again = await agent.use("notes__add", req_id="one", a=1, b=1)
    assert "not run a second time" in again["content"][0]["text"]


async def ends(agent: Asked, server: ToolServer, changes: Changes) -> None:
    changes.seen()
    # A message of this length is none of a server's, which has then ended, and is started again.
    assert (await agent.use("notes__long", size=5 << 20))["isError"] is True
    with anyio.fail_after(60):
        while not server.failure:
            await anyio.sleep(0.02)
        assert not server.tools
        await changes.wait()
        while server.failure:
            await anyio.sleep(0.02)
    assert (await agent.use("notes__add", a=1, b=1))["isError"] is False


@pytest.mark.parametrize("argv", [["sh", "-c", "exit 3"], ["sh", "-c", "echo nonsense; cat"]])
async def test_a_server_that_is_none_does_not_start(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublet.office_client.servers.START_SECONDS", 1.0)
    [command] = server_commands([argv], [], os.environ, Path.cwd())
    server = ToolServer(command, lambda: None)
    with anyio.fail_after(30):
        await server.serve()
    assert server.started.is_set()
    assert server.failure.startswith("MCP server sh ")


async def test_few_desktops_are_gathered_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way, most = 0, 0

    async def gathers(*_: object) -> list[str]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await anyio.sleep(0)
        under_way -= 1
        return []

    monkeypatch.setattr(module, "desktop", gathers)
    agent = Asked(Computer("bob", [], Landing(None, time.monotonic)))
    shown = await asyncio.gather(*(agent.read("get_desktop") for _ in range(20)))
    assert [one["desktops"] for one in shown] == [[]] * 20
    assert most == module.MAX_DESKTOPS
