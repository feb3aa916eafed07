"""Connections that say nothing, say it slowly, or say blank lines: honest ones get in and get on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from attacks.kit.caller import address_of, caller, many
from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.operation import Nothing
from sublet.daemon.config.paths import Home, resolve_home
from sublet.daemon.control.client import ControlClient
from sublet.daemon.control.server import ControlServer
from sublet.daemon.net.slots import Slots, Standing
from sublet.mcp_server import host
from sublet.protocol.errors import SubletError
from sublet.supervisor.acp.stream import AgentStream
from sublet.supervisor.guarded_process import GuardedProcess
from sublet.turns import Turns
from sublet.unix_sockets import UnixStream
from sublet.web.face import MAX_CONNECTIONS as WEB_CONNECTIONS
from support.daemon_double import STATUS, DaemonDouble
from support.fake_daemon_api import FakeDaemonApi
from support.mcp_face import served as mcp_served
from support.web_page import served as web_served

pytestmark = pytest.mark.anyio
INITIALIZE = (
    json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "honest", "version": "1"},
            },
        }
    ).encode()
    + b"\n"
)


@dataclass(eq=False)
class Connection:
    """A connection as ``Slots`` sees it."""

    name: str
    address: str
    standing: Standing = Standing.STRANGE
    idle_since: float = 0
    ended: list[str] = field(default_factory=list)

    def give_way(self) -> None:
        self.ended.append(self.name)


def test_strangers_give_way_first_then_the_greedy_then_the_oldest() -> None:
    slots, ended = Slots(6), list[str]()
    for name, address, standing, since in (
        ("known", "a", Standing.KNOWN, 1.0),
        ("working", "b", Standing.WORKING, 0.0),
        ("greedy, later", "b", Standing.STRANGE, 9.0),
        ("greedy", "b", Standing.STRANGE, 8.0),
        ("modest", "c", Standing.STRANGE, 2.0),
        ("modest, later", "d", Standing.STRANGE, 7.0),
    ):
        assert slots.take(Connection(name, address, standing, since, ended))
    for number in range(6):
        slots.take(Connection(f"new {number}", f"n{number}", Standing.WORKING, 0, ended))
    assert ended == ["greedy", "greedy, later", "modest", "modest, later", "known"]
    assert len(slots) == 7
    assert not slots.take(Connection("beyond", "z", Standing.WORKING, 0, ended))


HALF = [
    b"",
    b"GET / HTT",
    b"POST /api/login HTTP/1.1\r\nHost: %s\r\nContent-Length: 99\r\n\r\n{",
    b"GET / HTTP/1.1\r\n",
]


@pytest.mark.parametrize("words", HALF)
async def test_silent_connections_keep_nobody_from_the_web_page(tmp_path: Path, words: bytes) -> None:
    async with web_served(tmp_path) as page:
        filled = words.replace(b"%s", page.host.encode())
        async with many(address_of(page.origin), 3 * WEB_CONNECTIONS, filled), page.visitor() as client:
            assert (await client.get("/")).status_code == 200


async def test_whoever_has_logged_in_outlasts_strangers_on_the_web_page(tmp_path: Path) -> None:
    async with web_served(tmp_path) as page, page.visitor() as client:
        await page.log_in(client)
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        get = f"GET /api/peers HTTP/1.1\r\nHost: {page.host}\r\nCookie: {cookie}\r\n"
        get += f"X-Sublet-Key: {client.headers['X-Sublet-Key']}\r\n\r\n"
        async with caller(address_of(page.origin)) as known:
            await known.say(get.encode())
            assert (await known.answer())[0] == 200
            async with many(address_of(page.origin), 2 * WEB_CONNECTIONS) as strangers:
                await known.say(get.encode())
                assert (await known.answer())[0] == 200
                assert (await strangers[0].answer())[0] == 503


async def test_beyond_its_connections_the_control_socket_says_so(tmp_path: Path) -> None:
    home = _home(tmp_path)
    async with serving(DaemonDouble({SHOW_STATUS.name: STATUS}), home) as client:
        async with many(home.control_socket, 300, b"GET /v1/sta") as half:
            assert await client.call(SHOW_STATUS, Nothing()) == STATUS
            status, body = await half[0].answer()
        assert status == 503
        error = SubletError.from_json(json.loads(body)["error"])
        assert "too many connections" in error.message


async def test_silent_hosts_keep_nobody_from_the_mcp_socket(tmp_path: Path) -> None:
    home = _home(tmp_path)
    async with (
        mcp_served(FakeDaemonApi(), home) as face,
        many(face.address, host.MAX_SESSIONS + 8),
        caller(face.address) as honest,
    ):
        await honest.say(INITIALIZE)
        with anyio.fail_after(60):
            answer = json.loads(await honest.reader.readline())
    assert answer["result"]["serverInfo"]["name"]


@pytest.mark.parametrize("blank", [b"\n", b" \n", b"\r\n", b"\t\t\n"])
async def test_blank_lines_do_not_keep_the_loop(tmp_path: Path, blank: bytes) -> None:
    home = _home(tmp_path)
    async with mcp_served(FakeDaemonApi(), home) as face, caller(face.address) as honest:
        await honest.say(INITIALIZE)
        assert json.loads(await honest.reader.readline())["id"] == 1
        async with caller(face.address) as flooder, anyio.create_task_group() as group:

            async def flood() -> None:
                while True:
                    await flooder.say(blank * 100_000)

            group.start_soon(flood)
            for number in range(2, 12):
                await honest.say(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % number)
                with anyio.fail_after(10):
                    assert json.loads(await honest.reader.readline())["id"] == number
            group.cancel_scope.cancel()


async def test_a_connection_gives_the_loop_to_others_whatever_it_has_buffered() -> None:
    turns, others, stop = Turns(), 0, False

    async def other() -> None:
        nonlocal others
        while not stop:
            others += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(other())
        while others < 3:  # without a turn for others, this never ends
            await turns.take()
        stop = True


@asynccontextmanager
async def serving(double: DaemonDouble, home: Home) -> AsyncIterator[ControlClient]:
    """Serve the control API of ``double`` and yield a client of it."""
    server = ControlServer(home, double.table, identify=lambda _: None)
    await server.start()
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        async with ControlClient(home) as client:
            yield client
        group.cancel_scope.cancel()


async def test_what_has_arrived_on_a_unix_socket_is_no_reason_to_go_on_alone() -> None:
    ours, theirs = socket.socketpair()
    theirs.send(b"\n" * 50)
    stream, turns = UnixStream(ours), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with contextlib.closing(theirs):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(other())
            for _ in range(50):
                assert await stream.receive(1) == b"\n"
            task.cancel()
        stream.close()
    assert turns >= 50


async def test_blank_lines_of_an_acp_agent_do_not_keep_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublet.turns.TURN_SECONDS", 0)
    reader, turns = asyncio.StreamReader(limit=1 << 20), 0
    reader.feed_data(b"\n" * 500 + b" \n" * 500 + b'{"method":"x"}\n')
    process = SimpleNamespace(stdin=object(), stdout=reader)
    stream = AgentStream(cast(GuardedProcess, process), lambda _: None)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(other())
        assert await stream.receive() == {"method": "x"}
        task.cancel()
    assert turns >= 1_000


def _home(base: Path) -> Home:
    home = resolve_home({"SUBLET_HOME": str(base / "h")})
    home.make()
    return home
