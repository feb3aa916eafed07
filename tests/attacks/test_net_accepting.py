"""Callers that queue up, and say nothing: each costs its slot, and one turn of the loop takes one of a listener."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from attacks.kit.caller import caller, many
from sublet.accepting import accept
from sublet.daemon.config.paths import resolve_home
from sublet.mcp_server import server
from sublet.mcp_server.host import McpFace
from sublet.supervisor.processes import MAX_ANCESTORS, ProcessOwners
from support.fake_daemon_api import FakeDaemonApi
from support.mcp_face import INITIALIZE, served

pytestmark = pytest.mark.anyio
QUEUED = 20
NEST = """
import os, sys
for _ in range(int(sys.argv[1])):
    if os.fork():
        os.wait()
        os._exit(0)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


async def test_a_queue_of_callers_is_taken_one_in_a_turn() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=QUEUED))
        listener.setblocking(False)
        for _ in range(QUEUED):
            opened.enter_context(socket.create_connection(listener.getsockname()))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(other())
            for _ in range(QUEUED):
                made, _ = await accept(listener)
                opened.enter_context(made)
            task.cancel()
    assert turns >= QUEUED


async def test_a_connection_that_is_taken_while_the_listener_stops_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with socket.create_connection(listener.getsockname()) as caller_side:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(accept(listener))
                await asyncio.sleep(0)  # it has the connection, and waits for its turn
                task.cancel()
            assert await asyncio.to_thread(caller_side.recv, 1) == b""


async def test_a_host_that_says_nothing_has_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = 0
    before = McpFace._loaded

    async def counting(face: McpFace) -> server.SubletServer:
        nonlocal loaded
        loaded += 1
        return await before(face)

    monkeypatch.setattr(McpFace, "_loaded", counting)
    home = resolve_home({"SUBLET_HOME": str(tmp_path / "h")})
    home.make()
    async with served(FakeDaemonApi(), home) as face, many(face.address, 5):
        while face.sessions < 5:
            await anyio.sleep(0)
        async with caller(face.address) as honest:
            await honest.say(json.dumps(INITIALIZE).encode() + b"\n")
            with anyio.fail_after(60):
                assert await honest.reader.readline()
        assert loaded == 1


def test_processes_nested_without_end_are_not_all_looked_through() -> None:
    for depth, refused in ((MAX_ANCESTORS // 4, False), (MAX_ANCESTORS + 1, True)):
        with subprocess.Popen(
            [sys.executable, "-c", NEST, str(depth)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as nest:
            assert nest.stdout is not None
            pid = int(nest.stdout.readline())
            with pytest.raises(ProcessLookupError) if refused else contextlib.nullcontext():
                assert ProcessOwners().owner(pid) is None
            nest.communicate()
